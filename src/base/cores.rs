use std::collections::HashSet;
use std::fs;

/// Where this thread may run, as Linux tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores {
    /// As the system numbers them: the first of every core, then their twins (hyperthreads).
    pub processors: Vec<usize>,
    /// So many of them are first.
    pub physical: usize,
}

impl Cores {
    /// `None` where nobody says.
    pub fn now() -> Option<Self> {
        let read = |path: &str| fs::read_to_string(path).ok();
        Self::of(&read("/proc/cpuinfo")?, &read("/proc/thread-self/status")?)
    }

    fn of(cpuinfo: &str, status: &str) -> Option<Self> {
        let allowed = list(field(status, "Cpus_allowed_list")?)?;
        let (mut cores, mut twins, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for text in cpuinfo.split("\n\n") {
            let number = field(text, "processor").and_then(|number| number.parse().ok());
            let Some(processor) = number.filter(|number| allowed.contains(number)) else { continue };
            // Not every architecture says which core it is of: then each is one of its own.
            let core = field(text, "physical id").zip(field(text, "core id"));
            let first = core.is_none_or(|core| seen.insert(core));
            if first { cores.push(processor) } else { twins.push(processor) }
        }
        let physical = cores.len();
        cores.extend(twins);
        (physical > 0).then_some(Self { processors: cores, physical })
    }
}

/// `0-3,8` is 0, 1, 2, 3 and 8.
fn list(text: &str) -> Option<HashSet<usize>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    Some(ranges?.into_iter().flatten().collect())
}

/// The value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(n, _)| n.trim() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two cores; processors 4 to 7 are the twins of 0 to 3.
    fn cpuinfo() -> String {
        let cpu =
            |n: usize| format!("processor\t: {n}\nphysical id\t: {}\ncore id\t\t: {}\n\n", n / 2 % 2, n % 2);
        (0..8).map(cpu).collect()
    }

    fn of(allowed: &str) -> (Vec<usize>, usize) {
        let found = Cores::of(&cpuinfo(), &format!("Name:\tx\nCpus_allowed_list:\t{allowed}\n"));
        found.map_or((Vec::new(), 0), |found| (found.processors, found.physical))
    }

    #[test]
    fn cores_come_before_their_twins_and_none_beyond_the_mask() {
        assert_eq!(of("0-7"), (vec![0, 1, 2, 3, 4, 5, 6, 7], 4));
        assert_eq!(of("1,4-6"), (vec![1, 4, 6, 5], 3));
        assert_eq!(of("2,6"), (vec![2, 6], 1));
        assert_eq!(of("9"), (vec![], 0));
        assert_eq!(of("many"), (vec![], 0));
    }

    #[test]
    fn a_system_that_tells_of_no_cores_has_one_for_each_processor() {
        let found = Cores::of("processor : 0\n\nprocessor : 1\n", "Cpus_allowed_list: 0-3\n");
        assert_eq!(found, Some(Cores { processors: vec![0, 1], physical: 2 }));
        assert_eq!(Cores::of("", "Cpus_allowed_list: 0-3\n"), None);
    }
}
