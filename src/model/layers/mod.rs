//! The parts decoders are made of.
//!
//! Shapes: `x: [tokens, dim]` is the residual stream, which every part adds to.

mod attention;
mod delta_net;
mod experts;
mod feed_forward;
mod head;
mod latent;
mod mamba2;
mod norm;
mod row_parallel;
mod short_conv;
mod state;

pub(super) use attention::{Attention, Normed};
pub(super) use delta_net::{DeltaNet, DeltaSizes};
pub(super) use experts::{Mixture, Rule, Shared};
pub(super) use feed_forward::{Dense, FeedForward, Gated};
pub(super) use head::{Embedding, Head};
pub(super) use latent::{Latent, LatentSizes};
pub(super) use mamba2::{GroupNorm, Mamba2, Mamba2Sizes};
pub(super) use norm::Normalisation;
pub(super) use row_parallel::RowParallel;
pub(super) use short_conv::ShortConv;
pub(super) use state::{Kernel, StateWork};

use super::config::Widths;
use super::groups::Place;
use super::rope::Rope;
use crate::compute::{Backend, MatrixSize, Result, RopeTable, Span};
use crate::parallel::Communicator;

/// A stack of layers between an embedding and a head: what every family comes to.
pub(super) struct Decoder<B: Backend> {
    pub(super) embedding: Embedding<B>,
    pub(super) layers: Vec<Layer<B>>,
    pub(super) head: Head<B>,
    /// Kinds of rotary embedding; layers name them by index.
    pub(super) ropes: Vec<Rope>,
    /// Weights that one pass reads, the head left out.
    pub(super) size: MatrixSize,
}

impl<B: Backend> Decoder<B> {
    /// Hidden states of the step's tokens into `buffers.x`, before the final normalisation.
    pub(super) fn forward(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        self.embedding.forward(pass, buffers)?;
        self.layers.iter().enumerate().try_for_each(|(i, layer)| layer.forward(i, pass, buffers))
    }

    pub(super) fn mixtures(&self) -> impl Iterator<Item = &Mixture<B>> {
        self.layers.iter().filter_map(|layer| match &layer.feed_forward {
            Some(FeedForward::Mixture(mixture)) => Some(mixture),
            _ => None,
        })
    }
}

/// What looks at the past, and what does not.
pub(super) struct Layer<B: Backend> {
    pub(super) mixer: Mixer<B>,
    pub(super) feed_forward: Option<FeedForward<B>>,
    /// Both read the residual stream as it was before either (GPT-J; Wang and Komatsuzaki 2021).
    pub(super) parallel: bool,
}

impl<B: Backend> Layer<B> {
    fn forward(&self, i: usize, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let Some(feed_forward) = &self.feed_forward else { return self.mixer.forward(i, pass, buffers) };
        if self.parallel {
            feed_forward.normalise(pass, buffers)?;
            self.mixer.forward(i, pass, buffers)?;
            return feed_forward.forward_normalised(pass, buffers);
        }
        self.mixer.forward(i, pass, buffers)?;
        feed_forward.forward(pass, buffers)
    }
}

/// How a layer looks at the past.
pub(super) enum Mixer<B: Backend> {
    Attention(Attention<B>),
    Latent(Latent<B>),
    ShortConv(ShortConv<B>),
    DeltaNet(DeltaNet<B>),
    Mamba2(Mamba2<B>),
}

impl<B: Backend> Mixer<B> {
    fn forward(&self, layer: usize, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        match self {
            Mixer::Attention(attention) => attention.forward(layer, pass, buffers),
            Mixer::Latent(latent) => latent.forward(layer, pass, buffers),
            Mixer::ShortConv(conv) => conv.forward(layer, pass, buffers),
            Mixer::DeltaNet(delta) => delta.forward(layer, pass, buffers),
            Mixer::Mamba2(mamba) => mamba.forward(layer, pass, buffers),
        }
    }

    /// What it does with a state; `None` where it keeps keys and values.
    pub(super) fn state(&self) -> Option<StateWork> {
        match self {
            Mixer::Attention(_) | Mixer::Latent(_) => None,
            Mixer::ShortConv(conv) => Some(conv.kernel.work()),
            Mixer::DeltaNet(delta) => Some(delta.work()),
            Mixer::Mamba2(mamba) => Some(mamba.work()),
        }
    }

    /// Tokens that it sees; `None` is all of them.
    pub(super) fn window(&self) -> Option<usize> {
        match self {
            Mixer::Attention(attention) => attention.window,
            Mixer::Latent(_) | Mixer::ShortConv(_) | Mixer::DeltaNet(_) | Mixer::Mamba2(_) => None,
        }
    }
}

/// One pass over the layers: the device, the caches, and which tokens are whose.
pub(super) struct Pass<'a, B: Backend> {
    pub(super) backend: &'a mut B,
    pub(super) group: &'a dyn Communicator<B>,
    pub(super) caches: &'a mut [B::Cache],
    /// Of each layer: its cache, and the group whose block tables it uses.
    pub(super) places: &'a [Place],
    pub(super) ropes: &'a [RopeTable],
    /// For each cache group, the rows with their tables in it.
    pub(super) spans: &'a [Vec<Span<'a>>],
    pub(super) tokens: &'a [u32],
}

/// Allocated once for the largest batch; [`Widths`] says how wide.
pub(super) struct Buffers<B: Backend> {
    pub(super) x: B::Buf,         // [tokens, dim]
    pub(super) normed: B::Buf,    // [tokens, dim]: what two parts read
    pub(super) qkv: B::Buf,       // [tokens, widths.qkv]
    pub(super) attended: B::Buf,  // [tokens, widths.attended]
    pub(super) gated: B::Buf,     // [tokens, widths.gated]
    pub(super) router: B::Buf,    // [tokens, widths.router]
    pub(super) side: B::Buf,      // [tokens, widths.side]: gates of heads, queries on their way
    pub(super) projected: B::Buf, // [tokens, dim]
}

impl<B: Backend> Buffers<B> {
    pub(super) fn new(backend: &mut B, tokens: usize, dim: usize, widths: &Widths) -> Result<Self> {
        // A buffer that no layer uses has one value, not none: devices do not give nothing.
        let mut alloc = |width: usize| backend.alloc((tokens * width).max(1));
        Ok(Self {
            x: alloc(dim)?,
            normed: alloc(if widths.normed { dim } else { 0 })?,
            qkv: alloc(widths.qkv)?,
            attended: alloc(widths.attended)?,
            gated: alloc(widths.gated)?,
            router: alloc(widths.router)?,
            side: alloc(widths.side)?,
            projected: alloc(dim)?,
        })
    }
}
