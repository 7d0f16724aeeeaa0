//! What a folder says of the model beside its shape: what it is called, and its licence.

use super::json::Json;
use super::settings::Settings;
use std::path::Path;

pub(super) fn put(folder: &Path, config: &Json, settings: &mut Settings) {
    if let Some(name) = name(folder, config) {
        settings.put_global("general.name", name);
    }
    let readme = std::fs::read(folder.join("README.md")).unwrap_or_default();
    if let Some(licence) = licence(&readme) {
        settings.put_global("general.license", licence);
    }
}

/// That of the repository where the folder is one of a hub's cache, as
/// `models--owner--name/snapshots/<revision>`; the folder's otherwise.
fn name(folder: &Path, config: &Json) -> Option<String> {
    let said = config.str("_name_or_path").ok().flatten().and_then(|path| path.rsplit('/').next());
    let whole = folder.canonicalize().ok();
    let folder = whole.as_deref().unwrap_or(folder);
    let cached = folder.parent().filter(|parent| parent.ends_with("snapshots")).and_then(Path::parent);
    let repository = cached.and_then(Path::file_name).and_then(|name| name.to_str()?.rsplit("--").next());
    let name = repository.or_else(|| folder.file_name()?.to_str()).or(said)?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// `license: apache-2.0` of the lines between two `---` at the top.
fn licence(readme: &[u8]) -> Option<String> {
    const FRONT: usize = 64 << 10;
    let text = String::from_utf8_lossy(&readme[..readme.len().min(FRONT)]);
    let mut lines = text.lines().map(str::trim_end);
    lines.find(|line| !line.is_empty()).filter(|line| *line == "---")?;
    let front: Vec<&str> = lines.take_while(|line| *line != "---").collect();
    let value = |key: &str| {
        let line = front.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        let value = line.trim().trim_matches(['"', '\'']);
        (!value.is_empty()).then(|| value.to_owned())
    };
    let licence = value("license")?;
    if licence == "other" { value("license_name").or(Some(licence)) } else { Some(licence) }
}

#[cfg(test)]
mod tests {
    use super::licence;

    #[test]
    fn the_licence_stands_in_the_front_matter() {
        let of = |text: &str| licence(text.as_bytes());
        assert_eq!(of("---\nlicense: apache-2.0\ntags:\n- a\n---\n# x"), Some("apache-2.0".into()));
        assert_eq!(of("---\nlicense: other\nlicense_name: qwen\n---"), Some("qwen".into()));
        assert_eq!(of("# x\nlicense: mit"), None);
        assert_eq!(of(""), None);
    }
}
