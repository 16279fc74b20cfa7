//! Metadata for drivers: the catalog, schemas, tables and capabilities of the server.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::error::FlightError;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetSqlInfo, CommandGetTableTypes,
    CommandGetTables, SqlInfo,
};
use forebay_core::{Error, Result};

use crate::engine::{CATALOG, SqlEngine};

/// Type of all tables.
const TABLE: &str = "TABLE";

type Batch = std::result::Result<RecordBatch, FlightError>;

pub(crate) fn catalogs(query: CommandGetCatalogs) -> Batch {
    let mut catalogs = query.into_builder();
    catalogs.append(CATALOG);
    catalogs.build()
}

pub(crate) fn schemas(engine: &SqlEngine, query: CommandGetDbSchemas) -> Batch {
    let mut schemas = query.into_builder();
    for (schema, _) in engine.schemas() {
        schemas.append(CATALOG, schema);
    }
    schemas.build()
}

pub(crate) async fn tables(engine: &SqlEngine, query: CommandGetTables) -> Result<RecordBatch> {
    let mut tables = query.into_builder();
    for (schema, of_schema) in engine.schemas() {
        for name in of_schema.names() {
            // The table may have been dropped since.
            let Some(table) = of_schema.table(&name).await? else { continue };
            let result = tables.append(CATALOG, *schema, &name, TABLE, &table.schema());
            result.map_err(|error| Error::internal(error.to_string()))?;
        }
    }
    tables.build().map_err(|error| Error::internal(error.to_string()))
}

pub(crate) fn table_types(query: CommandGetTableTypes) -> Batch {
    let mut types = query.into_builder();
    types.append(TABLE);
    types.build()
}

pub(crate) fn sql_info_schema() -> SchemaRef {
    SqlInfoDataBuilder::schema().clone().into()
}

pub(crate) fn sql_info(query: CommandGetSqlInfo) -> Batch {
    query.into_builder(&capabilities()?).build()
}

fn capabilities() -> std::result::Result<SqlInfoData, FlightError> {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "Forebay");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, "1.3");
    info.append(SqlInfo::FlightSqlServerReadOnly, true);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerTransaction, 0_i32);
    info.append(SqlInfo::FlightSqlServerCancel, false);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.build()
}
