//! How well a model expects a text: `glassbox score`.
//!
//! A text longer than a window is read in several, each `stride` tokens on: in every one but the first
//! only what the one before did not hold is scored, so that each token is scored once, with at least
//! `window - stride` tokens before it (transformers: "Perplexity of fixed-length models").

use super::inspect::quoted;
use super::json;
use super::status::{Quit, Status};
use crate::protocol::{
    Command, Event, FinishReason, Handle, ModelInfo, Prompt, Request, RequestId, SamplingParams, ScoredToken,
    TokenId,
};
use serde::Serialize;
use std::io::{self, Write};

/// A text as tokens, and what each window begins with: the begin token, or nothing.
pub struct Text {
    pub begin: Vec<TokenId>,
    pub ids: Vec<TokenId>,
    /// Of each token, as text and in bytes of the text.
    pub pieces: Vec<(String, usize)>,
}

/// How a text is cut. `None`: the context, but no more than 2,048 tokens; half a window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Windows {
    pub window: Option<usize>,
    pub stride: Option<usize>,
}

/// Longer windows cost more than they tell, unless asked for.
const LONGEST: usize = 2048;

#[derive(Debug, Serialize)]
pub struct Score {
    model: String,
    /// Scored: without a begin token the first has nothing before it.
    tokens: usize,
    bytes: usize,
    /// Nats a token.
    mean_nll: f64,
    perplexity: f64,
    bits_per_byte: f64,
    window: usize,
    stride: usize,
    windows: usize,
    token_scores: Vec<TokenScore>,
}

#[derive(Debug, Serialize)]
struct TokenScore {
    id: TokenId,
    text: String,
    logprob: f32,
    rank: u32,
}

/// # Errors
/// A text of which nothing can be scored, a window or stride that is none, or what the engine says.
pub fn score(handle: &mut Handle, text: &Text, cut: Windows) -> Result<Score, Quit> {
    let info = ready(handle)?;
    let longest = info.context_length.saturating_sub(1);
    let window = cut.window.unwrap_or(LONGEST.min(longest));
    if window < 2 || window > longest {
        let why = format!("--window must be from 2 to {longest}, the context less a token, not {window}");
        return Err(Quit::new(Status::Usage, why));
    }
    let room = window - text.begin.len();
    // A window's first token is scored only where something stands before it.
    let most = room - usize::from(text.begin.is_empty());
    let stride = cut.stride.unwrap_or((room / 2).max(1));
    if stride == 0 || stride > most {
        return Err(Quit::new(Status::Usage, format!("--stride must be from 1 to {most}, not {stride}")));
    }
    let mut scored = Vec::new();
    let mut windows = 0;
    for (start, end) in spans(text.ids.len(), room, stride) {
        let ids = [&text.begin, &text.ids[start..end]].concat();
        let next = ask(handle, &ids, RequestId(1 + windows as u64))?;
        // Only the first token of a text may have nothing before it.
        let new = end - scored.len() - usize::from(text.begin.is_empty());
        scored.extend_from_slice(&next[next.len() - new.min(next.len())..]);
        windows += 1;
    }
    let unscored = text.ids.len() - scored.len();
    let mut report = Score::new(&info, text, &scored, unscored)?;
    (report.window, report.stride, report.windows) = (window, stride, windows);
    Ok(report)
}

/// Where windows of `room` tokens begin and end over `n` of them.
fn spans(n: usize, room: usize, stride: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut end = 0;
    std::iter::from_fn(move || {
        (end < n).then(|| {
            end = if end == 0 { room.min(n) } else { (end + stride).min(n) };
            (end.saturating_sub(room), end)
        })
    })
}

fn ready(handle: &mut Handle) -> Result<ModelInfo, Quit> {
    loop {
        for event in handle.events.blocking_recv().ok_or_else(gone)? {
            match event {
                Event::Ready(info) => return Ok(*info),
                Event::LoadFailed(failure) => return Err(failure.into()),
                _ => {}
            }
        }
    }
}

/// What the model expected of every id but the first.
fn ask(handle: &mut Handle, ids: &[TokenId], id: RequestId) -> Result<Vec<ScoredToken>, Quit> {
    let params = SamplingParams { temperature: 0.0, max_tokens: Some(1), ..SamplingParams::default() };
    let request =
        Request { prompt_logprobs: Some(0), ..Request::new(id, Prompt::Tokens(ids.to_vec()), params) };
    handle.commands.send(Command::Submit(Box::new(request))).map_err(|_| gone())?;
    let mut scored = Vec::with_capacity(ids.len());
    loop {
        for event in handle.events.blocking_recv().ok_or_else(gone)? {
            match event {
                Event::PromptLogprobs { next, .. } => scored.extend(next),
                Event::Finished { outcome, .. } => {
                    return match outcome.reason {
                        FinishReason::Error(failure) => Err(failure.into()),
                        _ => Ok(scored),
                    };
                }
                _ => {}
            }
        }
    }
}

fn gone() -> Quit {
    Quit::new(Status::Failed, "the engine ended before the answer did")
}

impl Score {
    fn new(info: &ModelInfo, text: &Text, scored: &[ScoredToken], unscored: usize) -> Result<Self, Quit> {
        if scored.is_empty() {
            return Err(Quit::new(Status::Data, "the text is too short to be scored: it needs two tokens"));
        }
        let pieces = &text.pieces[unscored..];
        let bytes: usize = pieces.iter().map(|(_, bytes)| bytes).sum();
        let nll: f64 = scored.iter().map(|token| -f64::from(token.logprob)).sum();
        let mean_nll = nll / scored.len() as f64;
        let one = |(token, (text, _)): (&ScoredToken, &(String, usize))| TokenScore {
            id: token.id,
            text: text.clone(),
            logprob: token.logprob,
            rank: token.rank,
        };
        Ok(Self {
            model: info.name.clone(),
            tokens: scored.len(),
            bytes,
            mean_nll,
            perplexity: mean_nll.exp(),
            bits_per_byte: nll / std::f64::consts::LN_2 / bytes.max(1) as f64,
            window: 0,
            stride: 0,
            windows: 0,
            token_scores: scored.iter().zip(pieces).map(one).collect(),
        })
    }

    pub fn perplexity(&self) -> f64 {
        self.perplexity
    }

    /// Every scored token's log-probability and rank.
    pub fn tokens(&self) -> impl Iterator<Item = (TokenId, f32, u32)> + '_ {
        self.token_scores.iter().map(|token| (token.id, token.logprob, token.rank))
    }
}

/// One JSON object, or lines for people: a summary, after a line for each token where wanted.
pub fn print_score(out: &mut impl Write, score: &Score, tokens: bool, as_json: bool) -> io::Result<()> {
    if as_json {
        return json::write_line(out, score);
    }
    for token in score.token_scores.iter().filter(|_| tokens) {
        let TokenScore { id, text, logprob, rank } = token;
        writeln!(out, "{id:>7}  {logprob:>9.4}  {rank:>6}  {}", quoted(text))?;
    }
    writeln!(
        out,
        "perplexity {:.4} · {:.4} nats a token · {:.4} bits a byte",
        score.perplexity, score.mean_nll, score.bits_per_byte
    )?;
    let Score { tokens, bytes, windows, window, stride, .. } = score;
    match windows {
        1 => writeln!(out, "{tokens} tokens, {bytes} bytes"),
        _ => writeln!(out, "{tokens} tokens, {bytes} bytes, in {windows} windows of {window} by {stride}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_in_a_window_and_new_in_one_alone() {
        assert_eq!(spans(10, 4, 2).collect::<Vec<_>>(), [(0, 4), (2, 6), (4, 8), (6, 10)]);
        assert_eq!(spans(9, 4, 4).collect::<Vec<_>>(), [(0, 4), (4, 8), (5, 9)]);
        assert_eq!(spans(3, 4, 2).collect::<Vec<_>>(), [(0, 3)]);
        assert_eq!(spans(0, 4, 2).count(), 0);
    }

    /// The glossary's unit: a model that gives every token 1/2 has perplexity 2.
    #[test]
    fn perplexity_is_the_inverse_of_the_mean_probability() {
        let token = |id| ScoredToken { id, logprob: 0.5f32.ln(), rank: 1 };
        let text = Text {
            begin: vec![],
            ids: vec![1, 2, 3],
            pieces: ["a", "bb", "c"].map(|piece| (piece.to_owned(), piece.len())).into(),
        };
        let score = Score::new(&ModelInfo::default(), &text, &[token(2), token(3)], 1).unwrap();
        assert!((score.perplexity - 2.0).abs() < 1e-6 && (score.bits_per_byte - 2.0 / 3.0).abs() < 1e-6);
        assert_eq!((score.tokens, score.bytes), (2, 3));
        assert!(Score::new(&ModelInfo::default(), &text, &[], 3).is_err());
        let mut out = Vec::new();
        print_score(&mut out, &score, true, false).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert!(
            said.contains("2    -0.6931       1  \"bb\"\n") && said.contains("perplexity 2.0000"),
            "{said}"
        );
    }
}
