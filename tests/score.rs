//! `glassbox score`: perplexity, log-probabilities and ranks against transformers' logits on the tiny
//! random checkpoints, summed here in double precision.
#![allow(clippy::unwrap_used)]

mod support;

use glassbox::config::EngineSettings;
use glassbox::open;
use glassbox::protocol::TokenId;
use glassbox::script::{Score, Text, Windows, score};
use glassbox::weights::{Found, Origin};
use safetensors::SafeTensors;
use support::fixture;

struct Golden(Vec<u8>);

impl Golden {
    fn bytes<const N: usize>(&self, name: &str) -> Vec<[u8; N]> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let data = tensors.tensor(name).unwrap().data().to_vec();
        data.chunks_exact(N).map(|b| b.try_into().unwrap()).collect()
    }

    fn ids(&self, prompt: &str) -> Vec<TokenId> {
        self.bytes(&format!("{prompt}.input_ids"))
            .into_iter()
            .map(|b| i64::from_le_bytes(b) as TokenId)
            .collect()
    }

    /// One row for each of the last ids.
    fn rows(&self, prompt: &str) -> Vec<Vec<f64>> {
        let name = format!("{prompt}.prefill_logits");
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let vocab = tensors.tensor(&name).unwrap().shape()[1];
        let all: Vec<f64> = self.bytes(&name).into_iter().map(|b| f32::from_le_bytes(b).into()).collect();
        all.chunks_exact(vocab).map(<[f64]>::to_vec).collect()
    }
}

fn scored(model: &str, ids: &[TokenId], cut: Windows) -> Score {
    let found = Found {
        name: model.into(),
        path: fixture(&format!("gguf/{model}.gguf")),
        origin: Origin::Path,
        reasoning: None,
    };
    let mut handle = open::engine(&found, None, None, EngineSettings::default());
    let pieces = ids.iter().map(|id| (id.to_string(), 1)).collect();
    score(&mut handle, &Text { begin: vec![], ids: ids.to_vec(), pieces }, cut).unwrap()
}

#[test]
fn perplexity_is_that_of_transformers_logits() {
    for model in ["llama", "qwen2", "gemma3_text_std"] {
        let golden = Golden(std::fs::read(fixture(&format!("golden/{model}.safetensors"))).unwrap());
        for prompt in ["a", "b", "c"] {
            let ids = golden.ids(prompt);
            let rows = golden.rows(prompt);
            let (mut nll, mut our_nll) = (0.0, 0.0);
            let ours = scored(model, &ids, Windows::default());
            assert_eq!(ours.tokens().count(), ids.len() - 1);
            // The first row says what follows this id.
            let first = ids.len() - rows.len();
            let told = ours.tokens().skip(first);
            assert!(rows.len() > 4);
            for ((row, next), (id, logprob, rank)) in rows.iter().zip(&ids[first + 1..]).zip(told) {
                let logit = row[*next as usize];
                let expected = logit - row.iter().map(|x| x.exp()).sum::<f64>().ln();
                nll -= expected;
                our_nll -= f64::from(logprob);
                assert_eq!(id, *next);
                assert!((f64::from(logprob) - expected).abs() < 0.02, "{model}: {logprob} for {expected}");
                // Among logits so near each other rounding may turn an order.
                let above = |margin: f64| row.iter().filter(|x| **x >= logit + margin).count();
                assert!((above(0.02)..=above(-0.02)).contains(&(rank as usize)), "{model}: rank {rank}");
            }
            let perplexity = |nll: f64| (nll / (rows.len() - 1) as f64).exp();
            println!("{model}: {} for {} over {}", perplexity(our_nll), perplexity(nll), rows.len() - 1);
            assert!((perplexity(our_nll) / perplexity(nll) - 1.0).abs() < 0.005, "{model}");
            let mean = ours.tokens().map(|token| -f64::from(token.1)).sum::<f64>() / (ids.len() - 1) as f64;
            assert!((ours.perplexity() / mean.exp() - 1.0).abs() < 1e-9);
        }
    }
}

/// In windows every token is scored once, and a window that holds all is as none.
#[test]
fn windows_score_every_token_once() {
    let ids: Vec<TokenId> = (0..200).map(|i| (i * 37 + 11) % 380).collect();
    let whole = scored("llama", &ids, Windows { window: Some(200), stride: None });
    let cut = scored("llama", &ids, Windows { window: Some(64), stride: Some(16) });
    let of = |score: &Score| score.tokens().map(|token| token.0).collect::<Vec<_>>();
    assert_eq!((of(&whole), of(&cut)), (ids[1..].to_vec(), ids[1..].to_vec()));
    let first = |score: &Score| score.tokens().take(63).collect::<Vec<_>>();
    assert_eq!(first(&whole), first(&cut), "the first window has the same past");
    assert_ne!(whole.tokens().last(), cut.tokens().last(), "the last sees less of it");
}
