//! Folders that are refused, and why.

use super::small::{LLAMA_TENSORS, file, folder, llama};
use glassbox::weights::Checkpoint;
use serde_json::json;

fn refused(files: &[(&str, &[u8])]) -> String {
    let folder = folder(files);
    Checkpoint::open(folder.path()).unwrap_err().to_string().replace(folder.path().to_str().unwrap(), "model")
}

/// BUGLOG L11: a tied model has no head of its own, and one that is there as well is not needed.
#[test]
fn tied_models_need_no_head() {
    let config = llama().to_string();
    let tied = Checkpoint::from_hub_bytes("tied".as_ref(), config.as_bytes(), file(&LLAMA_TENSORS)).unwrap();
    assert!(tied.info("output.weight").is_none() && tied.notes().is_empty());

    let both = [LLAMA_TENSORS.as_slice(), &[("lm_head.weight", &[8, 4])]].concat();
    let both = Checkpoint::from_hub_bytes("tied".as_ref(), config.as_bytes(), file(&both)).unwrap();
    assert!(both.info("output.weight").is_none());
    assert_eq!(both.notes(), ["lm_head.weight is left out: the embedding is the head: tie_word_embeddings"]);

    let mut untied = llama();
    untied["tie_word_embeddings"] = json!(false);
    let error =
        Checkpoint::from_hub_bytes("untied".as_ref(), untied.to_string().as_bytes(), file(&LLAMA_TENSORS));
    assert_eq!(
        error.unwrap_err().to_string(),
        "untied: tensor \"lm_head.weight\": it is not there, and tie_word_embeddings is false in config.json"
    );
}

/// BUGLOG L13: an index that names a file that is not there.
#[test]
fn a_stale_index_is_refused_at_once() {
    let config = llama().to_string();
    let (first, second) = (file(&LLAMA_TENSORS[..5]), file(&LLAMA_TENSORS[5..]));
    let mut map = serde_json::Map::new();
    for (i, (name, _)) in LLAMA_TENSORS.iter().enumerate() {
        let shard = format!("model-0000{}-of-00003.safetensors", if i < 5 { 1 } else { 2 });
        map.insert((*name).to_owned(), shard.into());
    }
    let good = json!({ "metadata": {}, "weight_map": map }).to_string();
    map.insert("lm_head.weight".into(), "model-00003-of-00003.safetensors".into());
    let stale = json!({ "metadata": {}, "weight_map": map }).to_string();
    let files = |index: &'static str| -> Vec<(&'static str, Vec<u8>)> {
        vec![
            ("config.json", config.clone().into_bytes()),
            ("model-00001-of-00003.safetensors", first.clone()),
            ("model-00002-of-00003.safetensors", second.clone()),
            (index, Vec::new()),
        ]
    };
    let with = |index: &[u8]| {
        let mut files = files("model.safetensors.index.json");
        files[3].1 = index.to_vec();
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
        refused(&files)
    };
    assert_eq!(
        with(stale.as_bytes()),
        "model/model.safetensors.index.json: of the 3 files that it names, one is not in the folder: \
         model-00003-of-00003.safetensors"
    );
    let moved = good.replace("model-00002-of-00003", "model-00001-of-00003");
    assert!(with(moved.as_bytes()).contains("is in no file"), "{}", with(moved.as_bytes()));
    let outside = good.replace("model-00002-of-00003.safetensors", "../x.safetensors");
    assert!(with(outside.as_bytes()).contains("no name of a file in the folder"));
}

#[test]
fn a_pickle_is_refused_by_its_content() {
    let config = llama().to_string();
    let config = ("config.json", config.as_bytes());
    let (pickle, zip) =
        (b"\x80\x02}q\x00X\x01\x00".as_slice(), b"PK\x03\x04\x14\0\0\0archive/data.pkl".as_slice());
    for (bytes, said) in [(pickle, "Python pickle"), (zip, "zip archive")] {
        let error = refused(&[config, ("model.safetensors", bytes)]);
        assert!(error.starts_with("model/model.safetensors: it is a "), "{error}");
        assert!(error.contains(said) && error.contains("can run any code"), "{error}");
        let folder = folder(&[("weights.pth", bytes)]);
        let error = Checkpoint::open(&folder.path().join("weights.pth")).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let error = refused(&[config, ("pytorch_model.bin", pickle)]);
    assert!(error.contains("its weights are Python pickles only (pytorch_model.bin)"), "{error}");
    assert!(refused(&[config]).contains("it has no safetensors files"));
    assert!(refused(&[("model.safetensors", &file(&LLAMA_TENSORS))]).contains("it has no config.json"));
}

#[test]
fn what_is_missing_is_named_as_the_hub_does() {
    let config = llama().to_string();
    let open = |tensors: &[(&str, &[usize])]| {
        Checkpoint::from_hub_bytes("m".as_ref(), config.as_bytes(), file(tensors)).unwrap()
    };
    let error = open(&LLAMA_TENSORS[..8]).tensor("blk.0.ffn_up.weight").unwrap_err().to_string();
    assert_eq!(error, "m has no tensor \"model.layers.0.mlp.up_proj.weight\"");
    let more = [LLAMA_TENSORS.as_slice(), &[("model.layers.0.extra.weight", &[4])]].concat();
    assert!(open(&more).info("model.layers.0.extra.weight").is_some());
    let buffers =
        [LLAMA_TENSORS.as_slice(), &[("model.layers.0.self_attn.rotary_emb.inv_freq", &[1])]].concat();
    assert_eq!(
        open(&buffers).notes(),
        ["model.layers.0.self_attn.rotary_emb.inv_freq is left out: frequencies are computed"]
    );
}
