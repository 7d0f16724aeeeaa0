//! A long conversation, told as a recording tells one: no engine has to say it.

use glassbox::protocol::*;

/// Every answer has some 24 lines.
const ANSWER: &str = "The sky is blue because air scatters **short wavelengths** more than long ones.\n\n\
- Blue light (450 nm) scatters about *four times* as much as red (650 nm).\n\
- At sunset the light's path is longer, so mostly red is left.\n\n\
```rust\nfn scattering(nm: f64) -> f64 {\n    (550.0 / nm).powi(4) // relative to green\n}\n```\n\n\
| colour | nm | relative |\n|---|---:|---:|\n| blue | 450 | 2.23 |\n| red | 650 | 0.51 |\n\n\
1. one\n2. two\n3. three\n\nSo it looks blue, whoever looks at it and from wherever: the same air is everywhere.\n";

/// `turns` questions with their answers, all finished.
pub fn history(turns: u64) -> Vec<Event> {
    (0..turns).flat_map(turn).collect()
}

fn turn(nth: u64) -> Vec<Event> {
    let id = RequestId(1_000_000 + nth);
    let seq = SeqId { request: id, choice: 0 };
    let prompt = Prompt::Chat(vec![Message::new(Role::User, format!("question {nth}"))]);
    let request = Request::new(id, prompt, SamplingParams::default());
    let outcome = Outcome {
        reason: FinishReason::Stop,
        usage: Usage { completion_tokens: 200, ..Usage::default() },
        timings: Timings::default(),
        seed: 1,
        params: SamplingParams::default(),
        beam: None,
    };
    vec![
        Event::Sent(Box::new(Command::Submit(Box::new(request)))),
        Event::Delta { seq, part: Part::Text(ANSWER.into()) },
        Event::Finished { seq, outcome: Box::new(outcome) },
    ]
}
