//! One word per thing: the names of a schema are words of the glossary.

mod fixtures;

use fixtures::{RUNTIME, Schemas, connect};

const GLOSSARY: &str = include_str!("../../../docs/glossary.md");

/// The words that the glossary's section on PostgreSQL explains.
fn explained() -> Vec<&'static str> {
    let (_, section) = GLOSSARY.split_once("## Words in PostgreSQL").expect("a section on PostgreSQL");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).collect()
}

#[test]
fn the_glossary_explains_every_table_and_type() {
    RUNTIME.block_on(async {
        let schemas = Schemas::on("QO_TEST_POSTGRES");
        let schema = "words";
        schemas.schema(schema).await;
        let client = connect(&schemas.server()).await;
        // Every table has a type of its own name; an array type begins with an underscore.
        let names = "SELECT typname::text FROM pg_type
            WHERE typnamespace = $1::text::regnamespace AND typtype IN ('c', 'd', 'e', 'r') ORDER BY 1";
        let names = client.query(names, &[&schema]).await.expect("the names");
        let explained = explained();
        let missing: Vec<String> = names
            .iter()
            .map(|row| row.get(0))
            .filter(|name: &String| !explained.contains(&&**name))
            .collect();
        assert!(names.len() > 20, "{} names", names.len());
        assert!(missing.is_empty(), "docs/glossary.md does not explain {missing:?}");
        let gone: Vec<_> = explained
            .iter()
            .take_while(|word| **word != "class")
            .filter(|word| !names.iter().any(|row| row.get::<_, &str>(0) == **word))
            .collect();
        assert!(gone.is_empty(), "docs/glossary.md explains {gone:?}, which the schema lacks");
        client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.expect("it goes");
    });
}
