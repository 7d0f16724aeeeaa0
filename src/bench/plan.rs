use crate::config::SpeedArgs;

/// One line of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    pub kind: Kind,
    /// Tokens of each sequence that are timed.
    pub tokens: u32,
    /// Tokens of each sequence in the cache before the clock starts.
    pub depth: u32,
    /// Sequences that run together.
    pub batch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Prefill,
    Decode,
}

/// What an engine must be able to hold for a set of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub sequences: usize,
    /// Longest sequence.
    pub length: usize,
    /// Tokens in the cache at once, of all sequences.
    pub cache_tokens: usize,
    /// Only a prefill at depth uses it: the depth is computed before the clock starts.
    pub prefix_cache: bool,
}

/// Every combination of the lists, prefill first, as llama-bench orders them.
pub fn tests(args: &SpeedArgs) -> Vec<Test> {
    let or = |list: &[u32], default| if list.is_empty() { vec![default] } else { list.to_vec() };
    let lists = [(Kind::Prefill, or(&args.n_prompt, 512)), (Kind::Decode, or(&args.n_gen, 128))];
    let mut tests = Vec::new();
    for depth in or(&args.n_depth, 0) {
        for batch in or(&args.batch, 1) {
            for (kind, list) in &lists {
                let timed = list.iter().filter(|tokens| **tokens > 0);
                tests.extend(timed.map(|&tokens| Test { kind: *kind, tokens, depth, batch }));
            }
        }
    }
    tests
}

/// `step_tokens` is the engine's token budget of one step.
pub fn needs(tests: &[Test], step_tokens: usize) -> Needs {
    tests.iter().fold(Needs::default(), |needs, test| {
        let length = test.prompt_tokens() + test.max_tokens(step_tokens);
        Needs {
            sequences: needs.sequences.max(test.batch as usize),
            length: needs.length.max(length),
            cache_tokens: needs.cache_tokens.max(length * test.batch as usize),
            prefix_cache: needs.prefix_cache || (test.kind == Kind::Prefill && test.depth > 0),
        }
    })
}

impl Test {
    /// `pp512`, `tg128 @ d2048`, `tg128 x8`.
    pub fn name(&self) -> String {
        let kind = if self.kind == Kind::Prefill { "pp" } else { "tg" };
        let depth = if self.depth > 0 { format!(" @ d{}", self.depth) } else { String::new() };
        let batch = if self.batch > 1 { format!(" x{}", self.batch) } else { String::new() };
        format!("{kind}{}{depth}{batch}", self.tokens)
    }

    /// Tokens of each prompt: a decode needs at least one to start from.
    pub fn prompt_tokens(&self) -> usize {
        match self.kind {
            Kind::Prefill => (self.depth + self.tokens) as usize,
            Kind::Decode => self.depth.max(1) as usize,
        }
    }

    /// Answer tokens to ask for. Sequences start decoding one after the other while the last prompts
    /// are still prefilled; the early ones get so many more that they do not end before the late
    /// ones are timed.
    pub fn max_tokens(&self, step_tokens: usize) -> usize {
        match self.kind {
            Kind::Prefill => 1,
            Kind::Decode => {
                let batch = self.batch as usize;
                let a_step = step_tokens.saturating_sub(batch).max(1);
                let head_start =
                    if batch > 1 { (batch * self.prompt_tokens()).div_ceil(a_step) + 2 } else { 0 };
                1 + self.tokens as usize + head_start
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineFlags;

    fn args() -> SpeedArgs {
        SpeedArgs {
            model: None,
            n_prompt: vec![128, 512],
            n_gen: vec![0, 32],
            n_depth: vec![0, 1024],
            batch: vec![1, 4],
            limits: false,
            profile: false,
            compare: vec![],
            requests: None,
            repetitions: 1,
            json: false,
            engine: EngineFlags::default(),
        }
    }

    #[test]
    fn every_combination_is_a_test_and_zero_is_none() {
        let names: Vec<String> = super::tests(&args()).iter().map(Test::name).collect();
        assert_eq!(names.len(), 12);
        assert_eq!(names[..4], ["pp128", "pp512", "tg32", "pp128 x4"]);
        assert_eq!(names[11], "tg32 @ d1024 x4");
        let none = SpeedArgs { n_prompt: vec![], n_gen: vec![], n_depth: vec![], batch: vec![], ..args() };
        let names: Vec<String> = super::tests(&none).iter().map(Test::name).collect();
        assert_eq!(names, ["pp512", "tg128"]);
    }

    #[test]
    fn the_engine_is_made_large_enough() {
        let pp = Test { kind: Kind::Prefill, tokens: 512, depth: 0, batch: 1 };
        assert_eq!(
            needs(&[pp], 512),
            Needs { sequences: 1, length: 513, cache_tokens: 513, prefix_cache: false }
        );
        // Four prompts of 1000 tokens take eight steps of 508 free tokens: eight and two to spare.
        let tg = Test { kind: Kind::Decode, tokens: 32, depth: 1000, batch: 4 };
        assert_eq!(tg.max_tokens(512), 1 + 32 + 8 + 2);
        let both = needs(&[pp, Test { depth: 64, ..pp }, tg], 512);
        assert_eq!((both.sequences, both.length, both.prefix_cache), (4, 1043, true));
    }
}
