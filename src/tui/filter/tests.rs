//! The filter language by examples and by chance.

#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

struct Row {
    name: &'static str,
    model: Option<&'static str>,
    free: f64,
    age_secs: Option<f64>,
    mem_bytes: f64,
    profiles: &'static [&'static str],
}

const ROW: Row = Row {
    name: "gpu-node-01",
    model: Some("H100-80"),
    free: 2.0,
    age_secs: Some(7200.0),
    mem_bytes: 85_899_345_920.0,
    profiles: &["1g.10gb", "3g.40gb"],
};

fn columns() -> Vec<FilterColumn<Row>> {
    fn column(
        name: &'static str,
        unit: Unit,
        value: for<'a> fn(&'a Row, Timestamp) -> Value<'a>,
    ) -> FilterColumn<Row> {
        FilterColumn {
            name,
            aliases: if name == "name" { &["node"] } else { &[] },
            unit,
            about: "",
            value,
        }
    }
    vec![
        column("name", Unit::Text, |r, _| Value::text(r.name)),
        column("model", Unit::Text, |r, _| {
            r.model.map_or(Value::Unknown, Value::text)
        }),
        column("free", Unit::Count, |r, _| Value::Number(r.free)),
        column("age", Unit::Secs, |r, _| Value::number(r.age_secs)),
        column("mem", Unit::Bytes, |r, _| Value::Number(r.mem_bytes)),
        column("mig", Unit::Text, |r, _| {
            Value::List(r.profiles.iter().map(|p| Cow::Borrowed(*p)).collect())
        }),
    ]
}

fn holds(text: &str) -> bool {
    Filter::parse(text, &columns())
        .unwrap()
        .matches(&ROW, Timestamp::UNIX_EPOCH, |r, word| {
            contains(r.name, word)
        })
}

#[test]
fn terms() {
    for yes in [
        "",
        "NODE-01",
        "model=h100",
        "MODEL=H100-80",
        "model!=a100",
        "model:100",
        "free>0",
        "free>=2",
        "free=2",
        "free==2",
        "free<3",
        "node=gpu",
        "age>1h",
        "age<=2h",
        "mem>=80Gi",
        "mig=3g",
        "!absent",
        "-absent",
        "-model=a100 !free>2 node",
        "\"gpu-node\"",
        "name:\"node-0\"",
    ] {
        assert!(holds(yes), "{yes}");
    }
    for no in [
        "absent",
        "model=a100",
        "model!=h100",
        "free>2",
        "age>1d",
        "-node",
        "mig=7g",
        "model=h100 free>7",
        "model=\"\"",
        "\"gpu node\"",
    ] {
        assert!(!holds(no), "{no}");
    }
}

#[test]
fn what_is_not_known_is_not_zero() {
    let row = Row {
        model: None,
        age_secs: None,
        ..ROW
    };
    let holds = |text: &str| {
        Filter::parse(text, &columns())
            .unwrap()
            .matches(&row, Timestamp::UNIX_EPOCH, |_, _| false)
    };
    assert!(holds("model=\"\"") && holds("age=\"\"") && holds("model!=h100"));
    assert!(!holds("age<1h") && !holds("age>0") && !holds("model=h"));
}

#[test]
fn mistakes_say_where_and_what_is_allowed() {
    for (text, message) in [
        (
            "free>0 modle=h100",
            "unknown column `modle`, did you mean `model`? Allowed are name, model, free, \
             age, mem, mig (at character 8)",
        ),
        (
            "model>3",
            "`model` is text: use =, != or : with it (at character 1)",
        ),
        (
            "age>soon",
            "`age` takes an age such as 45s, 12m, 3h or 5d, not `soon` (at character 1)",
        ),
        ("free>", "a value is missing here (at character 1)"),
        ("a !", "a value is missing here (at character 3)"),
        ("a \"b c", "the quote is not closed (at character 3)"),
    ] {
        let error = Filter::parse(text, &columns()).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert!(
        Filter::parse("free>", &columns())
            .unwrap_err()
            .problem
            .is_unfinished()
    );
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "\\PC{0,60}") {
        match Filter::parse(&text, &columns()) {
            Ok(filter) => {
                filter.matches(&ROW, Timestamp::UNIX_EPOCH, |r, word| contains(r.name, word));
            }
            Err(error) => prop_assert!(error.at <= text.chars().count()),
        }
    }

    #[test]
    fn texts_like_filters_are_answered(
        text in "((model|free|age|mig|x)?[!=<>:\" -]{0,3}[a-z0-9é.\"]{0,4} ?){0,5}"
    ) {
        if let Ok(filter) = Filter::parse(&text, &columns()) {
            filter.matches(&ROW, Timestamp::UNIX_EPOCH, |r, word| contains(r.name, word));
        }
    }

    #[test]
    fn a_term_and_its_negation_never_both_hold(word in "[a-z0-9]{1,6}") {
        let negated = format!("!{word}");
        prop_assert_ne!(holds(&word), holds(&negated));
    }
}
