use crate::harness::{Numbers, get, in_every_order, put, room};
use glassbox::compute::cuda::limits::{Bench, Product};
use glassbox::compute::cuda::{Arg, Shape};

/// The kernels do what they are timed for. Rates of an emulator say nothing and are not asked for.
#[test]
fn copies_and_products_are_made() {
    in_every_order(|gpu| {
        let bench = Bench::new(gpu, 1 << 20).unwrap();
        bench.copy_once().unwrap();
        bench.read_once().unwrap();
        for product in [Product::F16, Product::Bf16, Product::Int8, Product::F32] {
            bench.multiply_once(product, 2).unwrap();
        }
        gpu.wait().unwrap();
    });
}

/// Of lengths that are whole turns and that are not.
#[test]
fn every_byte_is_copied_and_read() {
    in_every_order(|gpu| {
        for len in [16, 512 * 2 * 16, 512 * 2 * 16 * 4 + 48, 512 * 2 * 16 * 5] {
            let bytes = Numbers::new(len as u64).bytes(len);
            let (from, to, seen) = (put(gpu, &bytes), room::<u8>(gpu, len), room::<u32>(gpu, 2));
            let shape = Shape::new([2, 1, 1], 512);
            let count = Arg::U64(len as u64 / 16);
            gpu.launch("limits", "limits_copy", shape, &[(&to).into(), (&from).into(), count]).unwrap();
            assert!(get::<u8>(gpu, &to, len) == bytes, "{len}");
            gpu.launch("limits", "limits_read", shape, &[(&seen).into(), (&from).into(), count]).unwrap();
            let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
            let seen: Vec<u32> = get(gpu, &seen, 2);
            assert_eq!(seen[0] ^ seen[1], words.fold(0, |all, word| all ^ word), "{len}");
        }
    });
}
