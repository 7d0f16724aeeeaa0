use super::counted::counted;
use super::json;
use super::status::{Quit, Status};
use crate::base::visible;
use crate::protocol::{
    Command, Event, FinishReason, Handle, Prompt, Request, RequestId, SamplingParams, TokenId, TopToken,
};
use serde::Serialize;
use std::io::{self, Write};

/// A token of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    pub id: TokenId,
    pub text: String,
    /// Of `text`, where that is whole characters: a token may hold half of one.
    pub bytes: Vec<u8>,
    /// A control token, such as `<|im_end|>`.
    pub special: bool,
}

pub fn print_tokens(out: &mut impl Write, pieces: &[Piece], as_json: bool) -> io::Result<()> {
    if as_json {
        let (ids, texts): (Vec<_>, Vec<_>) = pieces.iter().map(|p| (p.id, &p.text)).unzip();
        return json::write_line(out, &serde_json::json!({ "ids": ids, "pieces": texts }));
    }
    for piece in pieces {
        let mark = if piece.special { "  special" } else { "" };
        let text =
            if str::from_utf8(&piece.bytes).is_ok() { quoted(&piece.text) } else { bytes(&piece.bytes) };
        writeln!(out, "{:>7}  {text}{mark}", piece.id)?;
    }
    writeln!(out, "{}", counted(pieces.len(), "token"))
}

/// A tensor of a model's file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorRow {
    pub name: String,
    pub format: String,
    /// As the file has it: the fastest-running dimension first.
    pub shape: Vec<u64>,
    pub bytes: u64,
}

pub fn print_tensors(out: &mut impl Write, tensors: &[TensorRow], as_json: bool) -> io::Result<()> {
    if as_json {
        return json::write_pretty(out, &tensors);
    }
    let names = tensors.iter().map(|t| visible(&t.name).chars().count()).max().unwrap_or(0);
    for t in tensors {
        let shape = t.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
        writeln!(out, "{:names$}  {:5}  {:>11}  {shape}", visible(&t.name), t.format, t.bytes)?;
    }
    let bytes: u64 = tensors.iter().map(|t| t.bytes).sum();
    writeln!(out, "{}, {bytes} bytes", counted(tensors.len(), "tensor"))
}

/// What the model expects after each of `ids`: the `top` likeliest tokens, best first.
pub fn logits(handle: &mut Handle, ids: &[TokenId], top: u32) -> Result<Vec<Vec<TopToken>>, Quit> {
    let id = RequestId(1);
    let params = SamplingParams {
        temperature: 0.0,
        max_tokens: Some(1),
        logprobs: Some(top),
        ignore_eos: true,
        ..SamplingParams::default()
    };
    let mut request = Request::new(id, Prompt::Tokens(ids.to_vec()), params);
    request.prompt_logprobs = Some(top);
    let gone = || Quit::new(Status::Failed, "the engine ended before the answer did");
    handle.commands.send(Command::Submit(Box::new(request))).map_err(|_| gone())?;

    let mut positions = vec![Vec::new(); ids.len()];
    loop {
        for event in handle.events.blocking_recv().ok_or_else(gone)? {
            match event {
                Event::LoadFailed(failure) => return Err(failure.into()),
                Event::PromptLogprobs { first_position, rows, .. } => {
                    for (slot, row) in positions.iter_mut().skip(first_position).zip(rows) {
                        *slot = row;
                    }
                }
                // What is drawn first is what is expected after the last id.
                Event::Token { token, .. } => {
                    if let Some(last) = positions.last_mut().filter(|last| last.is_empty()) {
                        *last = token.top;
                    }
                }
                Event::Finished { outcome, .. } => {
                    return match outcome.reason {
                        FinishReason::Error(failure) => Err(failure.into()),
                        _ => Ok(positions),
                    };
                }
                _ => {}
            }
        }
    }
}

#[derive(Serialize)]
struct Positions {
    positions: Vec<Position>,
}

/// The token at a position, and what is expected after it.
#[derive(Serialize)]
struct Position {
    id: TokenId,
    top: Vec<Top>,
}

#[derive(Serialize)]
struct Top {
    id: TokenId,
    logit: f32,
    logprob: f32,
}

pub fn print_logits(
    out: &mut impl Write,
    ids: &[TokenId],
    rows: &[Vec<TopToken>],
    as_json: bool,
) -> io::Result<()> {
    if as_json {
        let top = |t: &TopToken| Top { id: t.id, logit: t.logit, logprob: t.logprob };
        let position =
            |(id, row): (&TokenId, &Vec<TopToken>)| Position { id: *id, top: row.iter().map(top).collect() };
        let positions = ids.iter().zip(rows).map(position).collect();
        return json::write_line(out, &Positions { positions });
    }
    for (i, (id, row)) in ids.iter().zip(rows).enumerate() {
        writeln!(out, "{i}: after {id}")?;
        for t in row {
            writeln!(out, "  {:>7}  {:>9.4}  {:>8.4}  {}", t.id, t.logit, t.logprob, quoted(&t.text))?;
        }
    }
    Ok(())
}

/// In quotes, on one line, harmless.
pub(super) fn quoted(text: &str) -> String {
    visible(&format!("{text:?}")).into_owned()
}

/// The same for what is not text, byte by byte where it is none: `" \xf0\x9f"`.
fn bytes(piece: &[u8]) -> String {
    let part = |chunk: std::str::Utf8Chunk| {
        let hex: String = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")).collect();
        visible(&chunk.valid().escape_debug().to_string()).into_owned() + &hex
    };
    format!("\"{}\"", piece.utf8_chunks().map(part).collect::<String>())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::protocol::*;
    use crate::script::fake;

    fn top(id: TokenId) -> TopToken {
        TopToken { id, text: "x".into(), logit: 2.0, logprob: -0.5 }
    }

    #[test]
    fn every_position_has_its_distribution_also_the_last() {
        let rows = Event::PromptLogprobs {
            id: REQUEST,
            first_position: 0,
            rows: vec![vec![top(5)], vec![top(6)]],
            next: vec![],
        };
        const REQUEST: RequestId = fake::REQUEST;
        let (mut handle, engine) = fake::engine(vec![
            vec![rows, fake::token(0, 7, "z")],
            vec![fake::finished(0, FinishReason::Length)],
        ]);
        let rows = logits(&mut handle, &[1, 2, 3], 1).unwrap();
        assert_eq!(rows.iter().map(|row| row[0].id).collect::<Vec<_>>(), [5, 6, 7]);
        drop(handle);
        let Command::Submit(request) = &engine.join().unwrap()[0] else { panic!() };
        assert_eq!((request.prompt_logprobs, &request.prompt), (Some(1), &Prompt::Tokens(vec![1, 2, 3])));
    }

    #[test]
    fn a_refusal_is_the_error() {
        let refusal = FinishReason::Error(Failure::new(FailureKind::TooLong, "9 tokens, 8 fit"));
        let (mut handle, _engine) = fake::engine(vec![vec![fake::finished(0, refusal)]]);
        assert_eq!(logits(&mut handle, &[1], 1).unwrap_err().status, Status::Data);
    }

    #[test]
    fn the_json_shapes_are_the_documented_ones() {
        let mut out = Vec::new();
        print_logits(&mut out, &[9], &[vec![top(5)]], true).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"positions\":[{\"id\":9,\"top\":[{\"id\":5,\"logit\":2.0,\"logprob\":-0.5}]}]}\n"
        );
        let pieces = [Piece { id: 1, text: "a\n".into(), bytes: b"a\n".into(), special: false }];
        let mut out = Vec::new();
        print_tokens(&mut out, &pieces, true).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "{\"ids\":[1],\"pieces\":[\"a\\n\"]}\n");
        let mut out = Vec::new();
        print_tokens(&mut out, &pieces, false).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "      1  \"a\\n\"\n1 token\n");
        let half = Piece { text: " \u{fffd}".into(), bytes: b" \xf0\x9f".into(), ..pieces[0].clone() };
        let mut out = Vec::new();
        print_tokens(&mut out, &[half], false).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "      1  \" \\xf0\\x9f\"\n1 token\n");
    }
}
