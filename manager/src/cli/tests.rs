use super::*;

fn parsed(line: &str) -> Result<Cli, clap::Error> {
    parse(line.split_whitespace().map(std::ffi::OsString::from))
}

#[test]
fn the_arguments_are_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_help_with_an_example() {
    let mut cli = Cli::command();
    cli.build();
    let mut without = vec![];
    for command in cli.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        let help = command.clone().render_help().to_string();
        if !help.contains("Example") || !help.contains("muster ") {
            without.push(command.get_name().to_owned());
        }
    }
    assert_eq!(without, Vec::<String>::new());
}

#[test]
fn json_and_url_may_stand_anywhere() {
    let cli = parsed("muster list --json --url http://h:1").unwrap();
    assert!(cli.json);
    assert_eq!(cli.url.as_deref(), Some("http://h:1"));
    assert!(parsed("muster --json list").unwrap().json);
}

#[test]
fn run_takes_inputs_and_constraints_often() {
    let cli =
        parsed("muster run plan.toml --input a --input b --constraint c --review code --out d").unwrap();
    assert!(matches!(cli.command, Command::Run(_)));
    assert!(parsed("muster run plan.toml --review maybe").is_err());
    assert!(parsed("muster run").is_err());
}

#[test]
fn pause_wants_a_goal_or_all_but_not_both() {
    assert!(parsed("muster pause").is_err());
    assert!(parsed("muster pause abc").is_ok());
    assert!(parsed("muster pause --all").is_ok());
    assert!(parsed("muster pause abc --all").is_err());
}

#[test]
fn a_mistake_in_the_arguments_is_an_error_like_all_others() {
    let of = |line: &str| usage(&parsed(line).unwrap_err());
    let unknown = of("muster lst --json");
    assert_eq!(unknown.exit().code(), 64);
    assert!(unknown.to_string().contains("'lst'") && unknown.hint().contains("'list'"), "{unknown:?}");
    let missing = of("muster run");
    assert!(
        missing.to_string().contains("<GOAL|PLAN>") && missing.hint().contains("muster run"),
        "{missing:?}"
    );
    assert!(of("muster run x --review maybe").to_string().contains("one of none, code, judged"));
}

#[test]
fn the_long_help_documents_environment_and_exit_codes() {
    let e = parsed("muster --help").unwrap_err();
    assert!(!e.use_stderr());
    let help = e.to_string();
    for word in ["MUSTER_URL", "OPENAI_API_KEY", "69 unreachable", "130 interrupted", "up --demo"] {
        assert!(help.contains(word), "{word}");
    }
}
