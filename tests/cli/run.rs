//! Answers, from a random model small enough to be here.

use super::{Home, Ran, TINY};
use serde_json::Value;
use std::collections::BTreeSet;

/// One thread: the machine that runs tests has other things to do.
fn run(home: &Home, arguments: &[&str]) -> Ran {
    home.run(&[&["run", TINY, "-t", "1"], arguments].concat())
}

#[test]
fn greedy_answers_are_the_same_each_time_and_in_each_form() {
    let home = Home::new();
    let greedy = ["the rain", "--temp", "0", "-n", "24"];
    let text = run(&home, &greedy).good();
    assert_eq!(run(&home, &greedy).good(), text);
    assert_eq!(run(&home, &[&greedy[..], &["--no-stream"]].concat()).good(), text);

    let object = run(&home, &[&greedy[..], &["--json"]].concat()).json();
    assert_eq!(format!("{}\n", object["text"].as_str().unwrap()), text);

    let lines = run(&home, &[&greedy[..], &["--output-format", "ndjson"]].concat()).good();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let deltas: String = lines.iter().filter_map(|line| line["text"].as_str()).collect();
    assert_eq!(format!("{deltas}\n"), text);
    assert_eq!((&lines[0]["event"], &lines.last().unwrap()["event"]), (&"start".into(), &"finish".into()));
}

#[test]
fn a_seed_that_was_drawn_is_reported_and_gives_the_same_answer() {
    let home = Home::new();
    let free = ["the rain", "--temp", "1", "-n", "24", "--json"];
    let first = run(&home, &free).json();
    let seed = first["seed"].as_u64().unwrap().to_string();
    let again = run(&home, &[&free[..], &["--seed", &seed]].concat()).json();
    assert_eq!((&again["text"], &again["seed"]), (&first["text"], &first["seed"]));
}

#[test]
fn a_choice_is_the_answer_to_its_own_seed() {
    let home = Home::new();
    let with = |more: &[&str]| {
        run(&home, &[&["the rain", "--temp", "1", "-n", "16", "--json"], more].concat()).json()
    };
    let three = with(&["--choices", "3", "--seed", "5"]);
    let choices = three["choices"].as_array().unwrap();
    let texts: BTreeSet<&str> = choices.iter().map(|choice| choice["text"].as_str().unwrap()).collect();
    assert_eq!((choices.len(), texts.len()), (3, 3));
    for (i, choice) in choices.iter().enumerate() {
        let seed = (5 + i).to_string();
        assert_eq!(with(&["--seed", &seed])["text"], choice["text"], "choice {i}");
    }
    assert_eq!((&three["usage"]["completion_tokens"], &three["text"]), (&48.into(), &choices[0]["text"]));
}

#[test]
fn the_json_object_has_every_promised_field_and_true_numbers() {
    let home = Home::new();
    let object = run(&home, &["the rain", "--temp", "0", "-n", "5", "--json", "--logprobs", "3"]).json();
    let keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "model",
            "device",
            "device_reason",
            "seed",
            "text",
            "reasoning",
            "tool_calls",
            "finish_reason",
            "usage",
            "timings",
            "work",
            "params",
            "tokens"
        ]
    );
    assert_eq!((&object["model"], &object["finish_reason"]), (&"llama".into(), &"length".into()));
    assert_eq!(
        (&object["usage"]["completion_tokens"], &object["params"]["max_tokens"]),
        (&5.into(), &5.into())
    );
    let timings = &object["timings"];
    for name in ["load_ms", "ttft_ms", "itl_ms_mean", "tpot_ms", "e2el_ms", "tokens_per_second"] {
        assert!(timings[name].as_f64().unwrap() > 0.0, "{name}");
    }
    assert!(object["work"]["gb_per_s"].as_f64() > Some(0.0), "{}", object["work"]);
    assert!(object["work"]["gflop_per_s"].as_f64() > Some(0.0), "{}", object["work"]);
    assert!(timings["ttft_ms"].as_f64().unwrap() < timings["e2el_ms"].as_f64().unwrap());

    let tokens = object["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), 5);
    for token in tokens {
        let top = token["top"].as_array().unwrap();
        assert_eq!((top.len(), &token["rank"]), (3, &1.into()), "greedy takes the likeliest");
        assert_eq!((&top[0]["id"], &top[0]["logprob"]), (&token["id"], &token["logprob"]));
        assert!(token["logprob"].as_f64().unwrap() < 0.0);
        assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
    }
    let bytes: Vec<u8> = tokens.iter().flat_map(|t| t["bytes"].as_array().unwrap()).map(byte).collect();
    assert_eq!(String::from_utf8_lossy(&bytes), object["text"].as_str().unwrap());
}

fn byte(value: &Value) -> u8 {
    value.as_u64().unwrap().try_into().unwrap()
}

/// BUGLOG S01, S02: nothing of a stop string is ever shown, wherever tokens end.
#[test]
fn an_answer_ends_before_its_stop_string() {
    let home = Home::new();
    let greedy = |more: &[&str]| {
        run(&home, &[&["the rain", "--temp", "0", "-n", "60", "--json"], more].concat()).json()
    };
    let whole = greedy(&[])["text"].as_str().unwrap().to_owned();
    let characters: Vec<char> = whole.chars().collect();
    let stop: String = characters[20..23].iter().collect();
    let before = &whole[..whole.find(&stop).unwrap()];
    let cut = greedy(&["--stop", &stop]);
    assert_eq!((cut["text"].as_str().unwrap(), &cut["finish_reason"]), (before, &"stop".into()));
    let streamed = run(&home, &["the rain", "--temp", "0", "-n", "60", "--stop", &stop]).good();
    assert_eq!(streamed.strip_suffix('\n').unwrap_or(&streamed), before.strip_suffix('\n').unwrap_or(before));
}

/// BUGLOG K10.
#[test]
fn a_prompt_that_can_never_fit_is_65_with_both_numbers() {
    let home = Home::new();
    let long = "word ".repeat(400);
    let said = home.run_with_stdin(&["run", TINY, "-t", "1"], long.as_bytes()).refused(65);
    assert!(said.contains("256") && said.contains("tokens"), "{said}");
    let lines = home.run_with_stdin(&["run", TINY, "--output-format", "ndjson"], long.as_bytes());
    let error: Value = serde_json::from_str(lines.out.lines().last().unwrap()).unwrap();
    assert_eq!((lines.status, &error["event"], &error["kind"]), (65, &"error".into(), &"too_long".into()));
}

#[test]
fn an_answer_may_fill_the_context_and_ends_there() {
    let object = run(&Home::new(), &["the rain", "--raw", "--json", "--temp", "0"]).json();
    let usage = &object["usage"];
    let total = usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap();
    assert!(object["finish_reason"] == "stop" || total == 256, "{usage}");
}

/// BUGLOG C09, C13.
#[test]
fn a_template_that_fails_is_65_in_its_own_words() {
    let home = Home::new();
    let with = |template: &str| {
        let file = home.write("template.jinja", template);
        run(&home, &["hi", "-n", "2", "--chat-template", &file])
    };
    assert!(with("{{ raise_exception('no poems here') }}").refused(65).contains("no poems here"));
    assert!(with("{% for %}").refused(65).contains("template"));
    assert_eq!(with("{{ messages[0].content }}").status, 0);
}

/// A copy of the tiny model in which the first `from` after `key` is `to`, of the same length.
fn patched(key: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = std::fs::read(TINY).unwrap();
    let at = bytes.windows(key.len()).position(|w| w == key).unwrap();
    let value = at + bytes[at..].windows(from.len()).position(|w| w == from).unwrap();
    bytes[value..value + to.len()].copy_from_slice(to);
    bytes
}

/// BUGLOG C13: nothing is made up for a model without a template.
#[test]
fn a_model_without_a_template_says_so_and_how_to_name_one() {
    let home = Home::new();
    let key = b"tokenizer.chat_template";
    let base = home.write("base.gguf", patched(key, key, b"tokenizer.nochatemplate"));
    let with = |more: &[&str]| home.run(&[&["run", &base, "hi", "-t", "1", "-n", "2"], more].concat());
    let said = with(&[]).refused(65);
    assert!(said.contains("no chat template") && said.contains("--chat-template FILE"), "{said}");
    assert!(said.contains("--raw"), "{said}");
    assert_eq!(with(&["--raw"]).status, 0);
    let file = home.write("t.jinja", "{{ messages[0].content }}");
    assert_eq!(with(&["--chat-template", &file]).status, 0);

    let input = home.write("in.json", r#"{"messages": [{"role": "user", "content": "Hi"}]}"#);
    let said = home.run(&["inspect", "template", &base, "--input", &input]).refused(65);
    assert!(said.contains("base has no chat template") && !said.contains("--chat-template"), "{said}");
}

#[test]
fn a_context_beyond_the_models_is_wrong_usage_and_one_beyond_memory_is_not() {
    let home = Home::new();
    let said = run(&home, &["hi", "--ctx", "9999"]).refused(2);
    assert!(said.contains("9999") && said.contains("256"), "{said}");
    let said = run(&home, &["hi", "--ctx", "256", "--kv-memory", "1KiB"]).refused(75);
    assert!(said.contains("256 tokens"), "{said}");
}

#[test]
fn a_file_that_is_no_model_is_77_and_says_why() {
    let home = Home::new();
    let bytes = std::fs::read(TINY).unwrap();
    let other = patched(b"general.architecture", b"llama", b"yeti9");

    for (file, content, wanted) in [
        ("text.gguf", &b"This is no model."[..], "text.gguf"),
        ("empty.gguf", b"", "empty.gguf"),
        ("cut.gguf", &bytes[..bytes.len() / 2], "cut.gguf"),
        ("yeti.gguf", &other, "\"yeti9\" is not supported; command-r, deepseek2"),
    ] {
        let path = home.write(file, content);
        let said = home.run(&["run", &path, "hi"]).refused(77);
        assert!(said.contains(wanted), "{file}: {said}");
    }
}

/// BUGLOG X23: the request ends with its reader.
#[test]
fn an_answer_without_a_reader_ends_quietly() {
    let home = Home::new();
    for form in ["text", "json", "ndjson"] {
        let arguments = ["run", TINY, "-t", "1", "hi", "--raw", "--output-format", form];
        let mut child = home.command(&arguments).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{form}");
    }
}

#[test]
fn statistics_are_on_stderr_and_quiet_is_quiet() {
    let home = Home::new();
    let loud = run(&home, &["hi", "--raw", "-n", "3", "--temp", "0", "--stats"]);
    assert!(loud.err.contains("3 tokens at") && loud.err.contains("tok/s"), "{}", loud.err);
    let quiet = run(&home, &["hi", "--raw", "-n", "3", "--temp", "0", "-q"]);
    assert_eq!((quiet.err.as_str(), quiet.out), ("", loud.out));
}

#[test]
fn a_word_that_is_no_model_is_the_prompt_for_the_default() {
    let home = Home::new();
    let output = home
        .command(&["run", "Hello", "--raw", "-n", "2", "--json", "-t", "1"])
        .env("GLASSBOX_MODEL", TINY)
        .output()
        .unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["model"], "llama");
}

#[test]
fn tokens_are_shown_with_their_pieces() {
    let home = Home::new();
    let tokenize = |more: &[&str]| home.run(&[&["inspect", "tokenize", TINY], more].concat());
    let both = tokenize(&["the rain", "--json"]).json();
    let pieces: String = both["pieces"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
    assert_eq!(pieces, "the rain");
    assert_eq!(both["ids"].as_array().unwrap().len(), both["pieces"].as_array().unwrap().len());
    let stdin = home.run_with_stdin(&["inspect", "tokenize", TINY, "--json"], b"the rain").json();
    assert_eq!(stdin, both);

    // BUGLOG Z01: the name of a special token is one, unless it is said to be plain text.
    let special = tokenize(&["<|im_end|>"]).good();
    assert!(special.contains("\"<|im_end|>\"  special") && special.ends_with("1 token\n"), "{special}");
    assert!(!tokenize(&["<|im_end|>", "--plain"]).good().contains("special"));
}

#[test]
fn a_template_is_rendered_exactly() {
    let home = Home::new();
    let input = home.write(
        "in.json",
        r#"{"messages": [{"role": "user", "content": "Hi <b>"}], "add_generation_prompt": true}"#,
    );
    let rendered = home.run(&["inspect", "template", TINY, "--input", &input]).good();
    assert_eq!(rendered, "<|bos|><|im_start|>user\nHi <b><|im_end|>\n<|im_start|>assistant\n");

    let file = home.write("t.jinja", "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}");
    assert_eq!(home.run(&["inspect", "template", &file, "--input", &input]).good(), "[user: Hi <b>]");

    let raising = home.write("r.jinja", "{{ raise_exception('not so') }}");
    assert!(home.run(&["inspect", "template", &raising, "--input", &input]).refused(65).contains("not so"));
    let broken = home.write("broken.json", "{");
    assert!(
        home.run(&["inspect", "template", &file, "--input", &broken]).refused(65).contains("broken.json")
    );
    home.run(&["inspect", "template", &file, "--input", "/nonexistent.json"]).refused(66);
}

#[test]
fn logits_are_those_that_a_greedy_run_follows() {
    let home = Home::new();
    let ids = home.run(&["inspect", "tokenize", TINY, "the rain in", "--json"]).json()["ids"].clone();
    let ids: Vec<String> = ids.as_array().unwrap().iter().map(Value::to_string).collect();
    let ask = |ids: &[String], top: &str| {
        home.run(&["inspect", "logits", TINY, "--ids", &ids.join(","), "--top", top, "--json", "-t", "1"])
            .json()
    };
    let all = ask(&ids, "4");
    let positions = all["positions"].as_array().unwrap();
    assert_eq!(positions.len(), ids.len());
    for (position, id) in positions.iter().zip(&ids) {
        assert_eq!(&position["id"].to_string(), id);
        let top = position["top"].as_array().unwrap();
        assert_eq!(top.len(), 4);
        let keys: Vec<&String> = top[0].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["id", "logit", "logprob"]);
        assert!(top.windows(2).all(|w| w[0]["logit"].as_f64() >= w[1]["logit"].as_f64()));
    }
    // A prefix of the ids sees the same distributions.
    let fewer = ask(&ids[..2], "4");
    for (a, b) in fewer["positions"].as_array().unwrap().iter().zip(positions) {
        let difference = a["top"][0]["logit"].as_f64().unwrap() - b["top"][0]["logit"].as_f64().unwrap();
        assert!(difference.abs() < 1e-3 && a["top"][0]["id"] == b["top"][0]["id"], "{a} {b}");
    }
    let said = home.run(&["inspect", "logits", TINY, "--ids", "1,999999"]).refused(2);
    assert!(said.contains("999999"), "{said}");
}

#[test]
fn the_benchmark_measures_what_it_was_asked_for() {
    let home = Home::new();
    let arguments = [
        "bench", "speed", "-m", TINY, "-p", "32", "-n", "4", "-d", "0,32", "-b", "1,2", "-r", "2", "-t", "1",
    ];
    let rows = home.run(&[&arguments[..], &["--json"]].concat()).json();
    let names: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["test"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["pp32", "tg4", "pp32 x2", "tg4 x2", "pp32 @ d32", "tg4 @ d32", "pp32 @ d32 x2", "tg4 @ d32 x2"]
    );
    for row in rows.as_array().unwrap() {
        let samples = row["samples_ts"].as_array().unwrap();
        assert!(samples.len() == 2 && samples.iter().all(|s| s.as_f64().unwrap() > 0.0), "{row}");
        assert_eq!((&row["n_threads"], &row["model"]), (&1.into(), &"llama".into()));
        // Counted by the engine: what it read and multiplied over the time.
        assert!(row["gb_per_s"].as_f64().unwrap() > 0.0 && row["gops"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row.get("limits").is_none() && row.get("profile").is_none());
    }
    // Next to nothing to hold is not too little of a cache.
    home.run(&["bench", "speed", "-m", TINY, "-p", "1", "-n", "1", "-r", "1", "-t", "1"]).good();
    let said = home.run(&["bench", "speed", "-m", TINY, "-p", "4000", "-n", "0", "-r", "1"]);
    assert_eq!(said.status, 65, "{}", said.err);
}

#[test]
fn a_profile_accounts_for_all_of_a_step() {
    let home = Home::new();
    let arguments =
        ["bench", "speed", "-m", TINY, "-p", "64", "-n", "8", "-r", "2", "-t", "1", "--profile", "--json"];
    for row in home.run(&arguments).json().as_array().unwrap() {
        let rows = row["profile"]["rows"].as_array().unwrap();
        let sum: f64 = rows.iter().map(|row| row["share"].as_f64().unwrap()).sum();
        assert!(
            (sum - 1.0).abs() < 1e-6 && rows.iter().all(|row| row["share"].as_f64().unwrap() > -1e-3),
            "{row}"
        );
        let calls = |name: &str| {
            let found =
                rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}: {row}"));
            found["calls_per_step"].as_f64()
        };
        let layers = calls("attend").unwrap();
        assert_eq!((calls("gated"), calls("store_kv")), (Some(layers), Some(layers)));
        assert_eq!(
            (calls("project"), calls("head"), calls("embed")),
            (Some(3.0 * layers), Some(1.0), Some(1.0))
        );
        assert_eq!((calls("scheduling"), calls("sampling")), (None, None));
        let steps = if row["n_gen"] == 8 { 2 * 8 } else { 2 };
        assert_eq!(row["profile"]["steps"], steps, "the timed ones, of both repetitions");
    }
    let said = home.run(&[&arguments[..], &["--set", "async_scheduling=true"]].concat()).refused(2);
    assert!(said.contains("--profile"), "{said}");
}

#[test]
fn limits_are_measured_and_every_test_has_its_share() {
    let home = Home::new();
    let arguments =
        ["bench", "speed", "-m", TINY, "-p", "64", "-n", "8", "-r", "1", "-t", "1", "--limits", "--json"];
    for row in home.run(&arguments).json().as_array().unwrap() {
        let limit = |name: &str| row["limits"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {row}"));
        for name in ["memory_gb_per_s", "memory_bytes", "matrix_gops", "f32_gflops"] {
            assert!(limit(name) > 0.1, "{name}: {row}");
        }
        let model = &row["limits"]["model"];
        assert!(model["gb_per_s"].as_f64() > Some(0.1) && row["limits"]["units"] == "1 thread", "{row}");
        assert!(limit("memory_bytes") > model["bytes"].as_f64().unwrap(), "{row}");
        assert!(row["shares"]["mfu"].as_f64() > Some(0.0), "{row}");
        // Steps of a tiny model are shorter than a wake-up of who counts its tokens: no more is sure.
        assert!(row["share_of_limit"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn a_peer_is_measured_in_turn_and_paired() {
    let home = Home::new();
    let log = home.path("log");
    let script = format!(
        "echo \"$@\" >> '{}'\necho loading >&2\n\
         echo '[{{\"n_prompt\": 32, \"n_gen\": 0, \"n_depth\": 0, \"avg_ts\": 0.5}}, {{\"n_prompt\": 9, \"n_gen\": 0, \"avg_ts\": 1}}]'\n",
        log.display()
    );
    let peer = format!("sh {} {{threads}} {{model}}", home.write("peer.sh", script));
    let arguments =
        ["bench", "speed", "-m", TINY, "-p", "32", "-n", "4", "-r", "3", "-t", "1", "--compare", &peer];
    let rows = home.run(&[&arguments[..], &["--json"]].concat()).json();
    assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("1 {TINY}\n").repeat(3), "once each round");
    let paired = &rows[0]["peers"][0];
    assert_eq!(
        (&paired["median_ts"], &paired["samples_ts"]),
        (&0.5.into(), &serde_json::json!([0.5, 0.5, 0.5]))
    );
    let ratio = paired["ratio"]["median"].as_f64().unwrap();
    assert!((ratio - rows[0]["median_ts"].as_f64().unwrap() / 0.5).abs() < 1e-6);
    assert!(rows[1].get("peers").is_none(), "it did not decode");

    let table = home.run(&arguments).good();
    assert!(table.contains("\npeer 1: sh ") && table.contains("times the best peer: pp32 "), "{table}");

    let said = home
        .run(&["bench", "speed", "-m", TINY, "-p", "8", "-n", "0", "-r", "1", "--compare", &peer])
        .refused(2);
    assert!(said.contains("no test in common: it measured pp32, pp9, and we pp8"), "{said}");
    let said = home
        .run(&["bench", "speed", "-m", TINY, "-p", "8", "-n", "0", "-r", "1", "--compare", "./no-such-bench"])
        .refused(2);
    assert!(said.contains("not found"), "{said}");
}

#[test]
fn a_run_can_be_recorded_and_the_file_is_whole() {
    let home = Home::new();
    let file = home.path("trace.jsonl");
    let to_file = ["--trace", file.to_str().unwrap()];
    let answer =
        home.run(&[&["run", TINY, "hello", "--raw", "-n", "20", "--temp", "0"], &to_file[..]].concat());
    let plain = home.run(&["run", TINY, "hello", "--raw", "-n", "20", "--temp", "0"]);
    assert_eq!(answer.good(), plain.good());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("{\"glassbox_trace\":1,") && text.ends_with("}\n"), "{text}");
    assert!(text.contains("\"Finished\""), "{text}");
    let steps = text.lines().filter(|line| line.starts_with("{\"s\":")).count();
    assert!((2..=20).contains(&steps), "{text}");
    // It is a trace, and all that is missing is a screen.
    assert!(home.run(&["replay", file.to_str().unwrap()]).refused(2).contains("needs a terminal"));
    let nowhere = home.path("no/such/folder/trace.jsonl");
    let said = home.run(&["run", TINY, "hello", "--raw", "--trace", nowhere.to_str().unwrap()]).refused(1);
    assert!(said.contains("cannot write the trace"), "{said}");
}
