//! The committed inputs of one fuzz target, and what the tests of a crate do with them. A crate with a target includes this file, the
//! module `bodies` and a body of its own.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use crate::bodies::Subject;
use crate::bodies::mutate::{self, Rng};

/// An input that is made by rule: its name, its bytes, and how its class begins.
pub type Seed = (String, Vec<u8>, &'static str);

/// A fuzz target whose inputs have classes.
pub struct Corpus {
    /// The folder of its inputs.
    pub name: &'static str,
    /// What is run with an input.
    pub body: fn(&[u8], Subject),
    /// How an input is read.
    pub class: fn(&[u8]) -> String,
}

impl Corpus {
    fn root() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
    }

    fn folder(&self) -> PathBuf {
        Self::root().join("corpus").join(self.name)
    }

    fn classes(&self) -> PathBuf {
        Self::root().join(format!("classes/{}.txt", self.name))
    }

    /// The committed inputs, by name.
    fn inputs(&self) -> BTreeMap<String, Vec<u8>> {
        std::fs::read_dir(self.folder())
            .unwrap()
            .map(|e| e.unwrap())
            .map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap()))
            .collect()
    }

    fn table(&self) -> String {
        self.inputs().iter().map(|(name, b)| format!("{name}: {}\n", (self.class)(b))).collect()
    }

    /// Every committed input keeps its class, and every seed is committed and has the class that its rule says.
    pub fn keeps_its_classes(&self, seeds: Vec<Seed>) {
        assert_eq!(self.table(), std::fs::read_to_string(self.classes()).unwrap());
        let inputs = self.inputs();
        for (name, bytes, want) in seeds {
            assert_eq!(inputs.get(&name), Some(&bytes), "{name}: run `write_corpus`");
            let class = (self.class)(&bytes);
            assert!(class.starts_with(want), "{name}: {class}");
        }
    }

    /// So many random inputs break nothing. They, and the committed ones, find the planted bug.
    pub fn finds_the_planted_bug(&self, random: usize) {
        let inputs: Vec<_> = self.inputs().into_values().collect();
        let mut rng = Rng::announced(1);
        let fails =
            |b: &[u8], subject| catch_unwind(AssertUnwindSafe(|| (self.body)(b, subject))).is_err();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let by_corpus = inputs.iter().filter(|b| fails(b, Subject::Broken)).count();
        let (mut wrong, mut found) = (None, 0);
        for _ in 0..random {
            let bytes = mutate::input(&inputs, &mut rng);
            if fails(&bytes, Subject::Real) {
                wrong = Some(bytes);
                break;
            }
            found += usize::from(fails(&bytes, Subject::Broken));
        }
        std::panic::set_hook(hook);
        assert_eq!(wrong, None, "run this input through the body");
        let name = self.name;
        println!(
            "{name}: {by_corpus} inputs of the corpus find the bug, {found} of {random} random ones"
        );
        assert!(by_corpus > 0 && found > 0);
    }

    /// Writes the seeds and the classes, after a deliberate change.
    pub fn write(&self, seeds: Vec<Seed>) {
        std::fs::create_dir_all(self.folder()).unwrap();
        for (name, bytes, _) in seeds {
            std::fs::write(self.folder().join(name), bytes).unwrap();
        }
        std::fs::write(self.classes(), self.table()).unwrap();
    }
}
