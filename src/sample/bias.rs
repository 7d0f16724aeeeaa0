use super::SampleRow;
use super::field::Field;
use crate::protocol::TokenId;

/// What the request says of single tokens: bias, then everything that is forbidden (vLLM: allowed ids,
/// bad words, `min_tokens`, `logit_bias`; that a masked logit stays masked makes their order free).
pub fn bias(field: &mut Field, row: &SampleRow) {
    let params = row.params;
    for (id, bias) in &params.logit_bias {
        field.edit(*id, |x| x + bias);
    }
    for id in &params.banned_token_ids {
        field.ban(*id);
    }
    for id in bad_word_ends(row) {
        field.ban(id);
    }
    if before_min_tokens(row) {
        row.end_tokens.iter().chain(&params.stop_token_ids).for_each(|id| field.ban(*id));
    }
    field.settle();
    if !params.allowed_token_ids.is_empty() {
        field.keep_ids(&params.allowed_token_ids);
    }
}

pub fn biases(row: &SampleRow) -> bool {
    let params = row.params;
    !params.logit_bias.is_empty()
        || !params.banned_token_ids.is_empty()
        || !params.allowed_token_ids.is_empty()
        || before_min_tokens(row)
        || bad_word_ends(row).next().is_some()
}

fn before_min_tokens(row: &SampleRow) -> bool {
    row.tokens.len() - row.prompt_len < row.params.min_tokens as usize
}

/// The last tokens of the bad words whose other tokens the answer ends with.
fn bad_word_ends(row: &SampleRow) -> impl Iterator<Item = TokenId> {
    let answer = &row.tokens[row.prompt_len..];
    row.phrases.bad_words.iter().filter_map(move |word| {
        let (last, start) = word.split_last()?;
        answer.ends_with(start).then_some(*last)
    })
}
