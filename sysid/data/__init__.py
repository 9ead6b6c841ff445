"""Sources of recordings, one file per source; each is a `sysid.data.source.DataSource`."""
