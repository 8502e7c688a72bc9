//! One target, and its run.

use crate::Random;
use crate::corpus::{self, Seed};
use crate::mutate::mutate;
use crate::shrink::shrink;
use crate::watch::Watch;
use std::any::Any;
use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Cases of a plain `cargo test`, unless the target asks for fewer: well under a second.
const SMOKE_CASES: usize = 1_000;

/// The seed of a plain `cargo test`: the same result each time. Fresh seeds are for runs that ask
/// for them by their time.
const SMOKE_SEED: u64 = 1;

/// Longest input in bytes, unless the target says otherwise.
const BYTES_MAX: usize = 4 * 1024;

/// Inputs beside the corpus that are kept because what came of them was new.
const POOL_MAX: usize = 1_024;

/// How long one check may take, unless the target says otherwise: a parser takes microseconds, and
/// a machine can be busy.
const CASE_MAX: Duration = Duration::from_secs(20);

/// Makes an input from scratch.
type Maker = fn(&mut Random) -> Vec<u8>;

/// Something that reads bytes of others, and how it is to be tried.
#[derive(Debug)]
pub struct Target {
    name: &'static str,
    corpus: PathBuf,
    tokens: Vec<Vec<u8>>,
    maker: Option<Maker>,
    bytes_max: usize,
    smoke_cases: usize,
    case_max: Duration,
}

impl Target {
    /// A target of the crate in `manifest_directory`, with its corpus in `fuzz-corpus/NAME/`.
    #[must_use]
    pub fn new(name: &'static str, manifest_directory: &str) -> Self {
        Self {
            name,
            corpus: Path::new(manifest_directory).join("fuzz-corpus").join(name),
            tokens: Vec::new(),
            maker: None,
            bytes_max: BYTES_MAX,
            smoke_cases: SMOKE_CASES,
            case_max: CASE_MAX,
        }
    }

    /// Words that mean something to the parser.
    #[must_use]
    pub fn tokens<T: AsRef<[u8]>>(mut self, tokens: &[T]) -> Self {
        self.tokens.extend(tokens.iter().map(|token| token.as_ref().to_vec()));
        self
    }

    /// Makes every second input from scratch, most often correct ones.
    #[must_use]
    pub fn made_by(mut self, maker: Maker) -> Self {
        self.maker = Some(maker);
        self
    }

    /// The longest input.
    #[must_use]
    pub fn bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// How many cases a plain `cargo test` checks, for checks that take long.
    #[must_use]
    pub fn smoke_cases(mut self, cases: usize) -> Self {
        self.smoke_cases = cases;
        self
    }

    /// How long one check may take.
    #[must_use]
    pub fn case_max(mut self, case_max: Duration) -> Self {
        self.case_max = case_max;
        self
    }

    /// Runs the target as the environment says. The check gets the bytes, and chance that follows
    /// from them alone; it returns what came of them.
    ///
    /// # Panics
    /// If the check does; the input is in a file then.
    pub fn run<T: Hash>(&self, check: impl Fn(&[u8], &mut Random) -> T) {
        let mut run = Run::new(self, check);
        if let Some(path) = std::env::var_os("POLDER_FUZZ_FILE") {
            let bytes = std::fs::read(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", Path::new(&path).display()));
            run.case(&bytes);
            println!("{}: {} passes", self.name, Path::new(&path).display());
            return;
        }
        for seed in corpus::read(&self.corpus) {
            run.replay(&seed);
        }
        let seconds = number("POLDER_FUZZ_S");
        let seed = number("POLDER_FUZZ_SEED").unwrap_or_else(|| match seconds {
            Some(_) => fresh_seed(),
            None => SMOKE_SEED,
        });
        println!("{}: POLDER_FUZZ_SEED={seed}", self.name);
        run.seed = Some(seed);
        run.chance(&mut Random::new(seed), seconds.map(Duration::from_secs));
    }

    fn stuck(&self) -> impl Fn(&[u8]) + Send + 'static {
        let (name, case_max) = (self.name, self.case_max);
        move |input| {
            let kept = kept(name, input);
            eprintln!("{name}: the check takes longer than {case_max:?}; {kept}");
        }
    }
}

/// A run of a target.
struct Run<'a, C> {
    target: &'a Target,
    check: C,
    pool: Vec<Vec<u8>>,
    kinds: HashSet<u64>,
    cases: usize,
    seed: Option<u64>,
    watch: Watch,
}

impl<'a, T: Hash, C: Fn(&[u8], &mut Random) -> T> Run<'a, C> {
    fn new(target: &'a Target, check: C) -> Self {
        let watch = Watch::start(target.case_max, target.stuck());
        let (pool, kinds) = (Vec::new(), HashSet::new());
        Self { target, check, pool, kinds, cases: 0, seed: None, watch }
    }

    fn replay(&mut self, seed: &Seed) {
        self.case(&seed.bytes);
        self.pool.push(seed.bytes.clone());
    }

    /// Checks inputs until the time is over.
    fn chance(&mut self, random: &mut Random, time: Option<Duration>) {
        let (start, kept_max) = (Instant::now(), self.pool.len() + POOL_MAX);
        let from_corpus = self.cases;
        let goes_on = |cases: usize| match time {
            Some(time) => start.elapsed() < time,
            None => cases < self.target.smoke_cases,
        };
        while goes_on(self.cases - from_corpus) {
            let input = self.input(random);
            if self.case(&input) && self.pool.len() < kept_max {
                self.pool.push(input);
            }
        }
        let (name, cases, kinds) = (self.target.name, self.cases, self.kinds.len());
        println!("{name}: {cases} cases, {kinds} kinds of outcome, {:.1?}", start.elapsed());
    }

    fn input(&self, random: &mut Random) -> Vec<u8> {
        let made = self.target.maker.filter(|_| random.once_in(2));
        let mut input = match made {
            Some(make) => make(random),
            None => random.pick(&self.pool).clone(),
        };
        if made.is_none() || random.once_in(3) {
            let other = random.pick(&self.pool).clone();
            mutate(&mut input, &other, &self.target.tokens, self.target.bytes_max, random);
        }
        input
    }

    /// Checks one input; whether what came of it is new.
    fn case(&mut self, input: &[u8]) -> bool {
        self.cases += 1;
        self.watch.begin(input);
        let outcome = self.checked(input);
        self.watch.rest();
        match outcome {
            Ok(kind) => self.kinds.insert(kind),
            Err(cause) => self.failed(input, &*cause),
        }
    }

    fn checked(&self, input: &[u8]) -> Result<u64, Box<dyn Any + Send>> {
        let check = || (self.check)(input, &mut Random::of(input));
        let outcome = catch_unwind(AssertUnwindSafe(check))?;
        let mut hasher = DefaultHasher::new();
        outcome.hash(&mut hasher);
        Ok(hasher.finish())
    }

    fn failed(&self, input: &[u8], cause: &(dyn Any + Send)) -> ! {
        let name = self.target.name;
        let smaller = quietly(|| shrink(input, |smaller| self.checked(smaller).is_err()));
        let mut report = kept(name, input);
        if smaller.len() < input.len() {
            report += &format!("\nsmaller: {}", kept(name, &smaller));
            report += &format!("\n  \"{}\"", smaller.escape_ascii());
        }
        if let Some(seed) = self.seed {
            report += &format!("\nthe whole run: cargo xtask fuzz {name} --seed {seed}");
        }
        let literal = || cause.downcast_ref::<&str>().copied();
        let cause = cause.downcast_ref::<String>().map(String::as_str).or_else(literal);
        let cause = cause.unwrap_or("see the panic above");
        panic!("{name}: case {} failed: {cause}\n{report}", self.cases);
    }
}

/// Keeps an input; how to check it again.
fn kept(name: &str, input: &[u8]) -> String {
    match corpus::keep(name, input) {
        Ok(path) => format!("replay: cargo xtask fuzz {name} --file {}", path.display()),
        Err(error) => format!("the input could not be kept ({error}): {}", input.escape_ascii()),
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no whole number")))
}

fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ (now.as_secs() << 30)
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs something whose panics are expected, and so not printed.
fn quietly<T>(run: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                before(panic);
            }
        }));
    });
    QUIET.set(true);
    let result = run();
    QUIET.set(false);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const HERE: &str = env!("CARGO_MANIFEST_DIR");

    fn target() -> Target {
        Target::new("example", HERE).tokens(&["open", "sesame"])
    }

    fn has(bytes: &[u8], part: &[u8]) -> bool {
        bytes.windows(part.len()).any(|window| window == part)
    }

    /// What a check returns leads deeper: inputs with one more of these letters are kept, and
    /// changed further.
    #[test]
    fn outcomes_lead_to_what_chance_alone_does_not_find() {
        let found = Cell::new(0);
        let run = || {
            target().smoke_cases(20_000).run(|bytes, _| {
                let depth = b"DEEPER".iter().take_while(|byte| bytes.contains(byte)).count();
                found.set(found.get().max(depth));
                depth
            });
        };
        run();
        assert!(found.get() >= 5, "only {} deep", found.get());
    }

    #[test]
    fn a_failure_is_kept_and_told() {
        let run = || {
            target().run(|bytes, _| assert!(!has(bytes, b"sesame"), "it opens"));
        };
        let cause = catch_unwind(run).unwrap_err();
        let text = cause.downcast_ref::<String>().unwrap();
        assert!(text.contains("it opens") && text.contains("example --seed 1"), "{text}");
        let smaller = text.lines().find_map(|line| line.strip_prefix("smaller: replay: ")).unwrap();
        let path = smaller.rsplit_once(' ').unwrap().1;
        assert_eq!(std::fs::read(path).unwrap(), b"sesame", "{text}");
    }

    #[test]
    fn the_same_seed_gives_the_same_inputs() {
        let inputs = || {
            let seen = RefCell::new(Vec::new());
            target().smoke_cases(200).made_by(|random| vec![random.next() as u8; 9]).run(
                |bytes, random| {
                    seen.borrow_mut().push((bytes.to_vec(), random.next()));
                    bytes.len()
                },
            );
            seen.into_inner()
        };
        let first = inputs();
        assert_eq!(first.len(), 200 + 2, "and the corpus");
        assert_eq!(first, inputs());
    }

    #[test]
    fn a_target_needs_a_corpus() {
        let run = || Target::new("nothing", HERE).run(|_, _| ());
        let cause = catch_unwind(run).unwrap_err();
        assert!(cause.downcast_ref::<String>().unwrap().contains("no corpus"));
    }
}
