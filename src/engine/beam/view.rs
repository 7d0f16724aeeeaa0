use super::drive::Live;
use super::{Node, Pruned};
use crate::engine::scheduler::Scheduler;
use crate::kv::BlockId;
use crate::protocol::{BeamRow, BeamView, EndedView, PrunedView, SeqId, TokenId};
use crate::text::TextModel;
use std::collections::HashMap;

/// Tokens of a beam that are shown, and characters of a text.
const TOKENS: usize = 24;
const CHARACTERS: usize = 120;

/// A search as it stands; `over`: its beams are gone.
pub fn view(live: &Live, over: bool, scheduler: &Scheduler, text: &TextModel) -> BeamView {
    let search = &live.search;
    let open = if over { &[][..] } else { &live.beams };
    let paths: Vec<Vec<Node>> =
        search.open.iter().take(open.len()).flatten().map(|node| search.path(*node)).collect();
    let stem = common(&paths);
    let blocks = Blocks::of(open.iter().map(|beam| beam.id), scheduler);
    let row = |(place, path): (usize, &Vec<Node>)| {
        let behind = &path[stem.max(path.len().saturating_sub(TOKENS))..];
        let last = path.last();
        let sum = last.map_or(0.0, |node| node.sum);
        let (owned, shared) = blocks.of[place];
        BeamRow {
            seq: open[place].id,
            tokens: behind.iter().map(|node| piece(text, node.drawn.token)).collect(),
            logprob: last.map_or(0.0, |node| node.drawn.logprob),
            sum,
            score: search.score(sum, search.depth),
            blocks: owned,
            shared,
        }
    };
    BeamView {
        request: live.beams[0].id.request,
        params: search.params,
        depth: search.depth,
        stem: words(text, paths.first().map_or(&[][..], |path| &path[..stem])),
        stem_tokens: stem as u32,
        open: paths.iter().enumerate().map(row).collect(),
        pruned: search.pruned.iter().map(|lost| pruned(live, lost, text)).collect(),
        ended: search
            .ended
            .iter()
            .map(|ended| {
                let path = search.path(ended.node);
                let (tokens, sum) = (path.len() as u32, path.last().map_or(0.0, |node| node.sum));
                EndedView { text: words(text, &path), tokens, sum, score: ended.score }
            })
            .collect(),
        over,
        blocks: blocks.distinct,
        shared: blocks.shared,
        saved: blocks.saved,
    }
}

fn pruned(live: &Live, lost: &Pruned, text: &TextModel) -> PrunedView {
    let before = lost.parent.map(|node| live.search.path(node)).unwrap_or_default();
    let (_, own) = piece(text, lost.drawn.token);
    PrunedView { before: words(text, &before), text: own, sum: lost.sum, behind: lost.behind }
}

/// Tokens that all paths begin with.
fn common(paths: &[Vec<Node>]) -> usize {
    let Some((first, others)) = paths.split_first() else { return 0 };
    let agrees = |at: usize| {
        others.iter().all(|path| path.get(at).map(|n| n.drawn.token) == Some(first[at].drawn.token))
    };
    (0..first.len()).take_while(|at| agrees(*at)).count()
}

fn piece(text: &TextModel, token: TokenId) -> (TokenId, String) {
    (token, text.piece_text(token))
}

/// The end of what these tokens say.
fn words(text: &TextModel, path: &[Node]) -> String {
    let bytes: Vec<u8> = path.iter().flat_map(|node| text.piece(node.drawn.token).into_owned()).collect();
    let said = String::from_utf8_lossy(&bytes);
    let skip = said.chars().count().saturating_sub(CHARACTERS);
    said.chars().skip(skip).collect()
}

/// Who owns how many blocks, and how many of them another beam owns too.
struct Blocks {
    of: Vec<(u32, u32)>,
    distinct: u32,
    shared: u32,
    saved: u32,
}

impl Blocks {
    fn of(beams: impl Iterator<Item = SeqId>, scheduler: &Scheduler) -> Self {
        let tables: Vec<Vec<BlockId>> = beams
            .map(|id| {
                let seq = scheduler.all().find(|seq| seq.id == id);
                seq.map_or(Vec::new(), |seq| seq.table.owned().collect())
            })
            .collect();
        let mut owners: HashMap<BlockId, u32> = HashMap::new();
        tables.iter().flatten().for_each(|block| *owners.entry(*block).or_default() += 1);
        let is_shared = |block: &&BlockId| owners[*block] > 1;
        let of = |table: &Vec<BlockId>| (table.len() as u32, table.iter().filter(is_shared).count() as u32);
        Self {
            of: tables.iter().map(of).collect(),
            distinct: owners.len() as u32,
            shared: owners.values().filter(|owners| **owners > 1).count() as u32,
            saved: owners.values().map(|owners| owners - 1).sum(),
        }
    }
}
