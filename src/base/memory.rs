use std::fs;
use std::path::{Path, PathBuf};

/// What the system and the process's control groups leave to this process, in bytes. `None` where
/// nobody says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub total: Option<u64>,
    /// Without swapping; pages of files count as free, since they can be read again.
    pub available: Option<u64>,
}

impl Memory {
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let groups = read("/proc/self/cgroup");
        Self::of(&read("/proc/meminfo"), control_groups(&groups, Path::new("/sys/fs/cgroup")))
    }

    fn of(meminfo: &str, groups: Vec<PathBuf>) -> Self {
        let mut memory = Self { total: kib(meminfo, "MemTotal"), available: kib(meminfo, "MemAvailable") };
        let least = |known: Option<u64>, limit: u64| Some(known.map_or(limit, |known| known.min(limit)));
        for (limit, left) in groups.iter().filter_map(|group| limit_and_left(group)) {
            memory.total = least(memory.total, limit);
            memory.available = least(memory.available, left);
        }
        memory
    }
}

/// The value of `name: 123 kB`, in bytes.
fn kib(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Folders of the process's group and of all groups around it, in both versions' places. A container
/// may see only the outermost of them.
fn control_groups(of_process: &str, root: &Path) -> Vec<PathBuf> {
    let mut groups = Vec::new();
    for line in of_process.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let root = match controllers {
            "" => root.to_owned(),
            list if list.split(',').any(|name| name == "memory") => root.join("memory"),
            _ => continue,
        };
        let own = root.join(path.trim_start_matches('/'));
        groups.extend(own.ancestors().take_while(|folder| folder.starts_with(&root)).map(Path::to_owned));
    }
    groups
}

/// A group's limit, and what of it is not in use by anything but files.
fn limit_and_left(group: &Path) -> Option<(u64, u64)> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = read("memory.stat").unwrap_or_default();
    let files = |name: &str| {
        let value = |key: &str| stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        // Version 1 counts the groups inside under a name of its own.
        let found = value(&format!("total_{name}")).or_else(|| value(name));
        found.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let files = files("inactive_file") + files("active_file");
    Some((limit, limit.saturating_sub(used.saturating_sub(files))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MEMINFO: &str = "MemTotal:       4096 kB\nMemFree: 7 kB\nMemAvailable:   2048 kB\n";

    #[test]
    fn without_groups_the_system_says_it_all() {
        let memory = Memory::of(MEMINFO, Vec::new());
        assert_eq!((memory.total, memory.available), (Some(4 << 20), Some(2 << 20)));
        assert_eq!(Memory::of("", Vec::new()), Memory::default());
    }

    fn group(root: &Path, path: &str, files: &[(&str, &str)]) {
        let folder = root.join(path);
        fs::create_dir_all(&folder).unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
    }

    #[test]
    fn the_tightest_group_around_the_process_counts() {
        let root = tempfile::tempdir().unwrap();
        group(root.path(), "a", &[("memory.max", "900000\n"), ("memory.current", "500000\n")]);
        group(
            root.path(),
            "a/b",
            &[
                ("memory.max", "800000\n"),
                ("memory.current", "700000\n"),
                ("memory.stat", "anon 400000\nactive_file 100000\ninactive_file 150000\n"),
            ],
        );
        group(root.path(), "a/b/c", &[("memory.max", "max\n"), ("memory.current", "1\n")]);
        let groups = control_groups("0::/a/b/c\n", root.path());
        assert_eq!(groups.len(), 4);
        let memory = Memory::of(MEMINFO, groups);
        // Files can be read again: 250000 of the inner group's 700000 are not really taken.
        assert_eq!((memory.total, memory.available), (Some(800_000), Some(350_000)));
    }

    #[test]
    fn the_older_version_has_other_names_and_places() {
        let root = tempfile::tempdir().unwrap();
        group(
            root.path(),
            "memory",
            &[
                ("memory.limit_in_bytes", "1000000\n"),
                ("memory.usage_in_bytes", "600000\n"),
                ("memory.stat", "inactive_file 1\ntotal_inactive_file 100000\ntotal_active_file 0\n"),
            ],
        );
        // A container often cannot see the folder of its own group.
        let groups = control_groups("4:cpu,memory:/not/here\n3:cpuset:/\n", root.path());
        assert_eq!(Memory::of(MEMINFO, groups).available, Some(500_000));
    }
}
