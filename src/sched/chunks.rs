//! A list that is cheap to fork: parts are shared until they change.

use std::sync::Arc;

/// Elements of a part.
const PART: usize = 64;

/// A list; all its parts but the last are full.
#[derive(Clone, Debug)]
pub(super) struct Chunks<T> {
    parts: Vec<Arc<Vec<T>>>,
    len: usize,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Chunks<T> {
    /// Elements.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// An element.
    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.parts.get(at / PART)?.get(at % PART)
    }

    /// All elements.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// How many elements at the beginning are so, when none behind the first that is not is.
    pub(super) fn partition_point(&self, is_so: impl Fn(&T) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.get(middle).is_some_and(&is_so) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

impl<T: Clone> Chunks<T> {
    /// An element to be changed.
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        if at >= self.len {
            return None;
        }
        Arc::make_mut(self.parts.get_mut(at / PART)?).get_mut(at % PART)
    }

    /// All elements to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let parts = self.parts.iter_mut();
        parts.flat_map(|part| Arc::make_mut(part).iter_mut())
    }

    /// One more.
    pub(super) fn push(&mut self, element: T) {
        match self.parts.last_mut().filter(|part| part.len() < PART) {
            Some(part) => Arc::make_mut(part).push(element),
            None => {
                let mut part = Vec::with_capacity(PART);
                part.push(element);
                self.parts.push(Arc::new(part));
            }
        }
        self.len += 1;
    }

    /// The last one, taken away.
    pub(super) fn pop(&mut self) -> Option<T> {
        let part = Arc::make_mut(self.parts.last_mut()?);
        let element = part.pop()?;
        if part.is_empty() {
            self.parts.pop();
        }
        self.len -= 1;
        Some(element)
    }

    /// Only the first `len` stay.
    pub(super) fn truncate(&mut self, len: usize) {
        while self.len > len {
            self.pop();
        }
    }

    /// Takes away all from a place on, and gives them back.
    pub(super) fn split_off(&mut self, at: usize) -> Vec<T> {
        let mut tail = Vec::with_capacity(self.len.saturating_sub(at));
        while self.len > at
            && let Some(element) = self.pop()
        {
            tail.push(element);
        }
        tail.reverse();
        tail
    }

    /// So many, the new ones like this.
    pub(super) fn resize(&mut self, len: usize, element: &T) {
        self.truncate(len);
        while self.len < len {
            self.push(element.clone());
        }
    }

    /// None stays.
    #[cfg(test)]
    pub(super) fn clear(&mut self) {
        self.truncate(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &Chunks<usize>) -> Vec<usize> {
        list.iter().copied().collect()
    }

    #[test]
    fn it_is_a_list() {
        let (mut list, mut plain) = (Chunks::default(), Vec::new());
        let mut x = 5_u64;
        let mut below = |most: usize| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(x >> 33).unwrap_or_default() % most
        };
        for step in 0..5_000 {
            match below(12) {
                0 => assert_eq!(list.pop(), plain.pop()),
                1 => {
                    let at = below(plain.len() + 1);
                    let (a, b) = (list.split_off(at), plain.split_off(at));
                    assert_eq!(a, b);
                    a.into_iter().for_each(|n| list.push(n));
                    plain.extend(b);
                }
                2 if step % 64 == 0 => {
                    let len = below(plain.len() * 2 + 1);
                    list.resize(len, &step);
                    plain.resize(len, step);
                }
                3 => {
                    let at = below(plain.len() + 1);
                    if let Some(n) = list.get_mut(at) {
                        *n += 1;
                    }
                    if let Some(n) = plain.get_mut(at) {
                        *n += 1;
                    }
                }
                _ => {
                    list.push(step);
                    plain.push(step);
                }
            }
            assert_eq!(list.len(), plain.len());
            assert_eq!(list.get(plain.len()), None);
        }
        assert_eq!(of(&list), plain);
        list.iter_mut().for_each(|n| *n += 1);
        list.truncate(100);
        assert_eq!(of(&list).first(), plain.first().map(|n| n + 1).as_ref());
        assert_eq!(list.len(), 100);
    }

    #[test]
    fn a_copy_and_its_original_go_their_own_ways() {
        let mut list = Chunks::default();
        (0..200).for_each(|n| list.push(n));
        let copy = list.clone();
        if let Some(n) = list.get_mut(130) {
            *n = 0;
        }
        list.pop();
        assert_eq!(of(&copy), (0..200).collect::<Vec<_>>());
        assert_eq!((list.len(), list.get(130)), (199, Some(&0)));
    }

    #[test]
    fn the_first_that_is_not_so_is_found() {
        let mut list = Chunks::default();
        (0..300).for_each(|n| list.push(n));
        for at in [0, 1, 63, 64, 65, 299, 300] {
            assert_eq!(list.partition_point(|n| *n < at), at);
        }
    }
}
