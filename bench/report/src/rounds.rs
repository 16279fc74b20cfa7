//! Interleaved rounds. Machines drift: a contender that runs first for a minute and a contender
//! that runs after it met different machines. Each round therefore runs every contender once, in an
//! order that rotates from round to round; ratios are formed inside a round, and a row is the
//! median over rounds.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Median and quartiles of a row's rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The first quartile.
    pub quartile_1: f64,
    /// The median: the row's value.
    pub median: f64,
    /// The third quartile.
    pub quartile_3: f64,
    /// Number of rounds.
    pub rounds: usize,
}

impl Spread {
    /// Computes the spread of one value or more, in any order; neighbours are interpolated.
    ///
    /// # Errors
    /// Fails for no value, or for a value that is not finite.
    pub fn of(values: &[f64]) -> Result<Self, String> {
        if values.is_empty() {
            return Err("a spread needs at least one round".to_owned());
        }
        if let Some(odd) = values.iter().find(|value| !value.is_finite()) {
            return Err(format!("a round measured {odd}"));
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let place = share * (sorted.len() - 1) as f64;
            let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            low + (high - low) * place.fract()
        };
        let rounds = sorted.len();
        Ok(Self {
            quartile_1: quantile(0.25),
            median: quantile(0.5),
            quartile_3: quantile(0.75),
            rounds,
        })
    }

    /// Returns the distance of the quartiles as a share of the median: the noise of the row.
    #[must_use]
    pub fn relative(&self) -> f64 {
        let width = self.quartile_3 - self.quartile_1;
        if self.median == 0.0 { width.abs() } else { (width / self.median).abs() }
    }
}

/// The measured values, by name and round.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    closed: Vec<BTreeMap<String, f64>>,
    open: BTreeMap<String, f64>,
}

impl Rounds {
    /// Records a value of the open round; a second value of the same name replaces the first.
    pub fn record(&mut self, name: &str, value: f64) {
        self.open.insert(name.to_owned(), value);
    }

    /// Ends the open round.
    pub fn close(&mut self) {
        self.closed.push(std::mem::take(&mut self.open));
    }

    /// Returns the spread of one name over all closed rounds.
    ///
    /// # Errors
    /// Fails if there is no round, or a round lacks the name.
    pub fn spread(&self, name: &str) -> Result<Spread, String> {
        Spread::of(&self.values(name)?)
    }

    /// Returns the spread of `name / peer`, each formed inside its round.
    ///
    /// # Errors
    /// Fails if there is no round, a round lacks a name, or a peer measured zero.
    pub fn ratio(&self, name: &str, peer: &str) -> Result<Spread, String> {
        let (values, peers) = (self.values(name)?, self.values(peer)?);
        let ratios: Vec<f64> =
            values.iter().zip(&peers).map(|(value, peer)| value / peer).collect();
        Spread::of(&ratios).map_err(|problem| format!("{name} / {peer}: {problem}"))
    }

    /// Returns every name that a closed round has.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.closed.iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    /// Returns the values of one name, round by round.
    ///
    /// # Errors
    /// Fails if a round lacks the name.
    pub fn values(&self, name: &str) -> Result<Vec<f64>, String> {
        let rounds = self.closed.iter().enumerate();
        let value = |(round, values): (usize, &BTreeMap<String, f64>)| {
            values.get(name).copied().ok_or_else(|| format!("round {round} has no '{name}'"))
        };
        rounds.map(value).collect()
    }
}

/// The values of one run of a contender, by name.
pub type Values = Vec<(String, f64)>;

/// A side of a comparison: a name, and the function that measures it once.
pub struct Contender<'a> {
    /// Name, for messages.
    pub name: String,
    /// Function that runs one round.
    pub run: Box<dyn FnMut() -> Result<Values, String> + 'a>,
}

impl<'a> Contender<'a> {
    /// Creates a contender with one value, under its own name.
    pub fn new(name: &str, mut run: impl FnMut() -> Result<f64, String> + 'a) -> Self {
        let value_name = name.to_owned();
        Self::several(name, move || Ok(vec![(value_name.clone(), run()?)]))
    }

    /// Creates a contender whose single run returns several values, each with its own name.
    pub fn several(name: &str, run: impl FnMut() -> Result<Values, String> + 'a) -> Self {
        Self { name: name.to_owned(), run: Box::new(run) }
    }
}

/// Runs every contender once in each round; the first contender rotates from round to round, so
/// none is always first.
///
/// # Errors
/// Fails if a contender fails; the message has its name and the round.
pub fn interleave(count: usize, contenders: &mut [Contender<'_>]) -> Result<Rounds, String> {
    let mut rounds = Rounds::default();
    for round in 0..count {
        for turn in 0..contenders.len() {
            let place = (round + turn) % contenders.len();
            let contender = &mut contenders[place];
            let values = (contender.run)()
                .map_err(|problem| format!("{}, round {round}: {problem}", contender.name))?;
            values.iter().for_each(|(name, value)| rounds.record(name, *value));
        }
        rounds.close();
    }
    Ok(rounds)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn quartiles_interpolate() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        let expected = Spread { quartile_1: 1.75, median: 2.5, quartile_3: 3.25, rounds: 4 };
        assert_eq!(spread, expected);
        assert_eq!(spread.relative(), 0.6);
        assert_eq!(Spread::of(&[7.0]).unwrap().quartile_3, 7.0);
    }

    #[test]
    fn rounds_refuse_missing_nan_and_zero_values() {
        assert!(Spread::of(&[]).is_err());
        assert!(Spread::of(&[1.0, f64::NAN]).is_err());
        let mut rounds = Rounds::default();
        rounds.record("a", 1.0);
        rounds.record("zero", 0.0);
        rounds.close();
        assert!(rounds.ratio("a", "zero").is_err());
        assert!(rounds.spread("b").unwrap_err().contains("round 0 has no 'b'"));
    }

    #[test]
    fn ratios_are_formed_inside_a_round() {
        let mut rounds = Rounds::default();
        // The machine slows down fourfold; the ratio inside each round does not change.
        for slowness in [1.0, 2.0, 4.0] {
            rounds.record("a", 10.0 * slowness);
            rounds.record("b", 20.0 * slowness);
            rounds.close();
        }
        assert_eq!(rounds.names().into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(rounds.values("a").unwrap(), [10.0, 20.0, 40.0]);
        let ratio = rounds.ratio("a", "b").unwrap();
        assert_eq!((ratio.quartile_1, ratio.median, ratio.quartile_3), (0.5, 0.5, 0.5));
    }

    #[test]
    fn first_turn_rotates_among_contenders() {
        let order = RefCell::new(String::new());
        let contender = |name: &'static str| {
            let order = &order;
            Contender::new(name, move || {
                order.borrow_mut().push_str(name);
                Ok(1.0)
            })
        };
        let mut contenders = [contender("a"), contender("b"), contender("c")];
        let rounds = interleave(4, &mut contenders).unwrap();
        assert_eq!(order.borrow().as_str(), "abcbcacababc");
        assert_eq!(rounds.spread("c").unwrap().rounds, 4);
    }

    #[test]
    fn run_returns_several_values() {
        let values = || Ok(vec![("p50".to_owned(), 2.0), ("p99".to_owned(), 3.0)]);
        let rounds = interleave(2, &mut [Contender::several("get", values)]).unwrap();
        assert_eq!(rounds.spread("p50").unwrap().median, 2.0);
        assert_eq!(rounds.ratio("p99", "p50").unwrap().median, 1.5);
        assert!(rounds.spread("get").is_err());
    }

    #[test]
    fn failure_names_contender_and_round() {
        let mut failures_left = 1;
        let mut failing = [Contender::new("peer", || {
            failures_left -= 1;
            if failures_left < 0 { Err("gone".to_owned()) } else { Ok(1.0) }
        })];
        assert_eq!(interleave(3, &mut failing).unwrap_err(), "peer, round 1: gone");
    }
}
