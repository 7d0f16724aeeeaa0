use std::path::{Path, PathBuf};

/// What the name of a file says about its place among the parts of one model:
/// `name-00001-of-00003.gguf` (llama.cpp's splits) or `name.gguf.part1of2` (cut by bytes).
#[derive(Debug, PartialEq)]
pub(super) struct Part {
    pub number: usize,
    pub count: usize,
    /// Name before and after the number, and the number's width.
    before: String,
    after: String,
    width: usize,
}

impl Part {
    pub fn from_name(path: &Path) -> Option<Part> {
        let name = path.file_name()?.to_str()?;
        name.match_indices("of").find_map(|(at, _)| {
            let left = name[..at].trim_end_matches(['-', '_']);
            let right = name[at + 2..].trim_start_matches(['-', '_']);
            let before = left.trim_end_matches(|c: char| c.is_ascii_digit());
            let digits = &left[before.len()..];
            let count_len = right.find(|c: char| !c.is_ascii_digit()).unwrap_or(right.len());
            let (number, count) = (digits.parse().ok()?, right[..count_len].parse().ok()?);
            let plausible = count >= 2 && (1..=count).contains(&number) && count <= 99_999;
            plausible.then(|| Part {
                number,
                count,
                before: before.to_owned(),
                after: name[left.len()..].to_owned(),
                width: digits.len(),
            })
        })
    }

    fn name(&self, number: usize) -> String {
        format!("{}{number:0width$}{}", self.before, self.after, width = self.width)
    }

    /// Where another part is, beside the one at `path`.
    pub fn path(&self, path: &Path, number: usize) -> PathBuf {
        path.with_file_name(self.name(number))
    }

    /// Not a file with a header of its own, as llama.cpp's parts are.
    pub fn is_cut_by_bytes(&self) -> bool {
        !self.after.ends_with(".gguf")
    }

    /// Which parts are missing beside `path`, if some are.
    pub fn missing(&self, path: &Path) -> Option<String> {
        let missing: Vec<String> = (1..=self.count)
            .filter(|number| !self.path(path, *number).exists())
            .map(|number| self.name(number))
            .collect();
        let is_part = format!("this is part {} of {} of a split model", self.number, self.count);
        match missing.len() {
            0 => None,
            1..=4 => Some(format!("{is_part}; missing beside it: {}", missing.join(", "))),
            n => Some(format!("{is_part}; {n} parts are missing beside it, first {}", missing[0])),
        }
    }

    /// Why one that was cut by bytes cannot be read.
    pub fn explain(&self, path: &Path) -> String {
        let joined = || {
            let (number, count) = (self.number, self.count);
            format!(
                "this is part {number} of {count} of a file that was cut: join the parts to one file first"
            )
        };
        self.missing(path).unwrap_or_else(joined)
    }
}

/// Of a file that says it is a part only inside.
pub(super) fn explain_unnamed(number: u64, count: u64) -> String {
    format!(
        "this is part {number} of {count} of a split model, and its name does not say so: the parts are found by \
         names such as model-{number:05}-of-{count:05}.gguf"
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn part_names() {
        let part = |name: &str| Part::from_name(Path::new(name)).map(|part| (part.number, part.count));
        assert_eq!(part("a/Big-00001-of-00003.gguf"), Some((1, 3)));
        assert_eq!(part("big.gguf.part1of2"), Some((1, 2)));
        assert_eq!(part("profoof-part_2_of_2.gguf"), Some((2, 2)));
        assert_eq!(part("offline.gguf"), None);
        assert_eq!(part("4-of-3.gguf"), None);
        assert_eq!(part("1of1.gguf"), None);
        assert_eq!(part("99999999999999999999of99999999999999999999.gguf"), None);
        assert_eq!(
            Part::from_name(Path::new("x-00001-of-00003.gguf")).unwrap().name(2),
            "x-00002-of-00003.gguf"
        );
    }
}
