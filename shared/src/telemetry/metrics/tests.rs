use super::*;

/// Name and labels of every series.
fn series() -> Vec<String> {
    let name = |line: &str| line.rsplit_once(' ').map(|(series, _)| series.to_owned());
    text().lines().filter(|l| !l.starts_with('#')).filter_map(name).collect()
}

fn fleet(lanes: usize) -> Seen {
    let lane = LaneSeen { ready: 1, leased: 2, demand: 3, consumers: 0, oldest_ready_ms: 1500 };
    let mut seen =
        Seen { lanes: (0..lanes).map(|n| (format!("work.p{n:05}"), lane)).collect(), ..Seen::default() };
    seen.asked([("budget".to_owned(), 2), ("model_quota".to_owned(), 1), ("no_model".to_owned(), 1)].into());
    seen
}

/// One process, as nextest runs it: whatever the order of the tests, the statics are this test's.
#[test]
fn q51_the_count_of_series_does_not_grow_with_the_work() {
    [Role::Manager, Role::Worker, Role::Reviewer].into_iter().for_each(begin);
    seen(Some(fleet(LANES_MAX + 1)));
    let first = series();
    for n in 0..1000 {
        for role in [Role::Manager, Role::Worker, Role::Reviewer] {
            Outcome::ALL.into_iter().for_each(|o| outcome(role, o, Duration::from_millis(n)));
            Answer::ALL.into_iter().for_each(|a| written(role, a));
            Call::ALL.into_iter().for_each(|c| model_call(role, "strong", c, Duration::from_secs(n), 1, 2));
            queue_wait(role, n);
            model_cost(role, n);
        }
        for asker in ["planner", "worker", "reviewer", "somebody new"] {
            model_wait_begins(asker);
            model_wait_ends(asker, Duration::from_millis(n));
        }
        Redis::ALL.into_iter().for_each(redis_event);
        Tool::ALL.into_iter().for_each(|t| tool_call(t, n % 2 == 0));
        http_request(u16::try_from(n).unwrap_or(0));
        review_item(n % 2 == 0, n % 3 == 0);
        // A plan may name any pool.
        seen(Some(fleet(LANES_MAX + 1 + usize::try_from(n).unwrap_or(0))));
    }
    assert_eq!(series(), first);
}

#[test]
fn lanes_beyond_the_bound_are_one_and_nothing_is_lost() {
    let mut fleet = fleet(LANES_MAX + 10);
    fleet.lanes.insert("zz".into(), LaneSeen { consumers: 1, ..LaneSeen::default() });
    let lanes = fleet.folded();
    assert_eq!(lanes.len(), LANES_MAX + 1);
    assert!(lanes.contains_key("zz"), "one that is served has a name");
    assert_eq!(lanes.values().map(|l| l.demand).sum::<u64>(), 3 * (LANES_MAX as u64 + 10));
}

#[test]
fn every_cause_is_counted_once() {
    let text = |seen: &Seen| {
        let mut out = vec![];
        TextEncoder::new().encode(&seen.families().unwrap(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let mut fleet = fleet(1);
    let text = text(&fleet);
    assert!(text.contains("muster_open_decisions{cause=\"budget\"} 2\n"), "{text}");
    assert!(text.contains("muster_open_decisions{cause=\"model\"} 2\n"), "{text}");
    assert!(text.contains("muster_oldest_ready_seconds{lane=\"work.p00000\"} 1.5\n"), "{text}");
    fleet.asked([("faults".to_owned(), 1), ("a new one".to_owned(), 4)].into());
    assert_eq!((fleet.decisions["ticket"], fleet.decisions["other"]), (1, 4));
}
