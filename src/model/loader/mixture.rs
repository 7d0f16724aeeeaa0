use super::Loader;
use crate::compute::{Activation, Backend, ExpertGroups, MixtureShape, Score};
use crate::model::config::{ConfigError, ModelConfig, bad};
use crate::model::layers::{Gated, Mixture, Rule, Shared};
use crate::model::load::LoadError;
use crate::weights::{Checkpoint, Tensor};

/// What a checkpoint says of its mixtures of experts, under `{architecture}.expert_*`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::model) struct MixtureConfig {
    pub(in crate::model) rule: Rule,
    /// Columns between gate and down of an expert, and of the shared one.
    pub(in crate::model) width: usize,
    pub(in crate::model) shared_width: usize,
    /// Layers before the first mixture.
    pub(in crate::model) dense_layers: usize,
}

impl MixtureConfig {
    /// `renormalise`: where the file does not say whether weights of the chosen add up to 1.
    pub(in crate::model) fn read(
        file: &Checkpoint,
        config: &ModelConfig,
        renormalise: bool,
    ) -> Result<Self, ConfigError> {
        let key = |name: &str| format!("{}.{name}", config.architecture);
        let whole = |name: &str, or: usize| -> Result<usize, ConfigError> {
            Ok(file.u64(&key(name))?.map_or(or, |value| usize::try_from(value).unwrap_or(usize::MAX)))
        };
        let (experts, top) = (whole("expert_count", 0)?, whole("expert_used_count", 0)?);
        if !(1..=MOST_EXPERTS).contains(&experts) {
            return Err(bad(&key("expert_count"), experts, &format!("from 1 to {MOST_EXPERTS} is possible")));
        }
        if !(1..=experts).contains(&top) {
            return Err(bad(&key("expert_used_count"), top, &format!("there are {experts} experts")));
        }
        let score = match whole("expert_gating_func", 1)? {
            1 | 3 => Score::Softmax,
            2 => Score::Sigmoid,
            other => {
                return Err(bad(
                    &key("expert_gating_func"),
                    other,
                    "1 (softmax), 2 (sigmoid) and 3 are known",
                ));
            }
        };
        let renormalise = file.bool(&key("expert_weights_norm"))?.unwrap_or(renormalise);
        let scale = match file.f32(&key("expert_weights_scale"))? {
            None | Some(0.0) => 1.0,
            Some(scale) => scale,
        };
        let groups = groups(file, config, experts, top, score)?;
        let width = whole("expert_feed_forward_length", config.feed_forward)?;
        let count = whole("expert_shared_count", 0)?;
        Ok(Self {
            rule: Rule { experts, top, score, groups, renormalise, scale },
            width,
            shared_width: whole("expert_shared_feed_forward_length", count.saturating_mul(width))?,
            dense_layers: whole("leading_dense_block_count", 0)?,
        })
    }

    /// Buffers become wide enough for mixtures.
    pub(in crate::model) fn widen(&self, config: &mut ModelConfig) {
        let (Rule { experts, top, .. }, dim) = (self.rule, config.dim);
        config.mixture = Some(MixtureShape { experts, top, dim, width: self.width });
        let widths = &mut config.widths;
        widths.normed = true;
        widths.router = widths.router.max(self.rule.experts);
        widths.gated = widths.gated.max(self.shared_width);
        widths.side = widths.side.max(1);
    }
}

/// A file that says more lies.
const MOST_EXPERTS: usize = 4096;

fn groups(
    file: &Checkpoint,
    config: &ModelConfig,
    experts: usize,
    top: usize,
    score: Score,
) -> Result<Option<ExpertGroups>, ConfigError> {
    let key = |name: &str| format!("{}.{name}", config.architecture);
    let all = file.u64(&key("expert_group_count"))?.unwrap_or(1) as usize;
    let chosen = file.u64(&key("expert_group_used_count"))?.unwrap_or(1) as usize;
    if all <= 1 {
        return Ok(None);
    }
    if !experts.is_multiple_of(all) || !(1..=all).contains(&chosen) || chosen * (experts / all) < top {
        let problem = format!("{experts} experts in groups of which {chosen} are chosen cannot give {top}");
        return Err(bad(&key("expert_group_count"), all, &problem));
    }
    Ok(Some(ExpertGroups { all, chosen, by_two: score == Score::Sigmoid }))
}

impl<'a, B: Backend> Loader<'a, B> {
    /// The feed-forward part of layer `i`; `norm` names its normalisation.
    pub(in crate::model) fn mixture(
        &mut self,
        config: &ModelConfig,
        mixture: &MixtureConfig,
        i: usize,
        norm: &str,
        activation: Activation,
    ) -> Result<Mixture<B>, LoadError> {
        let name = |part: &str| format!("blk.{i}.{part}");
        let (dim, width, experts) = (config.dim, mixture.width, mixture.rule.experts);
        let choice = self.optional_vector(&name("exp_probs_b.bias"), experts)?;
        Ok(Mixture {
            norm: self.norm(config, &name(norm), dim)?,
            router: self.matrix(&[(name("ffn_gate_inp.weight"), experts)], dim)?,
            router_bias: self.bias(&name("ffn_gate_inp"), experts)?,
            rule: mixture.rule,
            choice_bias: choice.map(|values| self.backend.upload(&values)).transpose()?,
            gate: self.experts(&name("ffn_gate"), experts, [dim, width])?,
            up: self.experts(&name("ffn_up"), experts, [dim, width])?,
            down: self.experts(&name("ffn_down"), experts, [width, dim])?,
            gate_bias: self.expert_bias(&name("ffn_gate_exps"), experts, width)?,
            up_bias: self.expert_bias(&name("ffn_up_exps"), experts, width)?,
            down_bias: self.expert_bias(&name("ffn_down_exps"), experts, dim)?,
            activation,
            shared: self.shared(config, mixture, i, activation)?,
        })
    }

    /// Matrices of all experts, stacked: `{name}_exps.weight`, or one tensor each as older files have it.
    fn experts(&mut self, name: &str, experts: usize, dims: [usize; 2]) -> Result<B::Matrix, LoadError> {
        let file = self.file;
        let all = format!("{name}_exps.weight");
        let tensors: Vec<Tensor<'a>> = match file.info(&all) {
            Some(_) => (0..experts).map(|e| file.part(&all, e, experts)).collect::<Result<_, _>>()?,
            None if file.info(&format!("{name}.0.weight")).is_some() => {
                (0..experts).map(|e| file.tensor(&format!("{name}.{e}.weight"))).collect::<Result<_, _>>()?
            }
            None => return Err(file.require_info(&all).expect_err("looked for above").into()),
        };
        tensors.iter().try_for_each(|tensor| self.check(tensor, &dims))?;
        self.stacked_experts(tensors)
    }

    fn expert_bias(&mut self, name: &str, experts: usize, len: usize) -> Result<Option<B::Buf>, LoadError> {
        let name = format!("{name}.bias");
        if self.file.info(&name).is_none() {
            return Ok(None);
        }
        let values = self.values_of(&name, &[len, experts])?;
        Ok(Some(self.backend.upload(&values)?))
    }

    fn shared(
        &mut self,
        config: &ModelConfig,
        mixture: &MixtureConfig,
        i: usize,
        activation: Activation,
    ) -> Result<Option<Shared<B>>, LoadError> {
        let (dim, width) = (config.dim, mixture.shared_width);
        let name = |part: &str| format!("blk.{i}.ffn_{part}");
        if width == 0 {
            return Ok(None);
        }
        let gate = name("gate_inp_shexp.weight");
        let gated = self.file.info(&gate).is_some();
        Ok(Some(Shared {
            part: Gated {
                norm: None,
                gate: self.matrix(&[(name("gate_shexp.weight"), width)], dim)?,
                up: self.matrix(&[(name("up_shexp.weight"), width)], dim)?,
                gate_bias: None,
                up_bias: None,
                activation,
                down: self.row_parallel(&name("down_shexp"), width, dim, None)?,
            },
            width,
            gate: gated.then(|| self.matrix(&[(gate, 1)], dim)).transpose()?,
        }))
    }
}
