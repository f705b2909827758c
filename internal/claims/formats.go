package claims

import (
	"bytes"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
)

// formats has values whose text depends on settings, and that do not: a driver that asks for texts, as pgx does in the
// modes exec and simple_protocol, may be unable to read them.
const (
	formatSettings = `SELECT current_setting('bytea_output'), current_setting('DateStyle'), current_setting('standard_conforming_strings'),
	current_setting('array_nulls'), current_setting('client_encoding')`
	formatBytes = `SELECT decode('00ff5c41', 'hex')`
	formatTime  = `SELECT timestamptz '2001-02-03 04:05:06.789012+00'`
)

// CheckFormats fails with ErrSettings if the driver cannot read values in the formats that the session's settings
// choose. scan runs a query of one row.
func CheckFormats(owner Owner, scan func(query string, dest ...any) error) error {
	var output, style, conforming, nulls, encoding string
	if err := scan(formatSettings, &output, &style, &conforming, &nulls, &encoding); err != nil {
		return owner.Errorf("%s: read the session's settings: %w", owner, err)
	}
	unfit := func(setting, value, want string) error {
		return owner.Errorf("%s: %w: %s is %s for the connections of this pool, and the driver cannot read or write values so: "+
			"ALTER ROLE … SET %s = %s, or set it in the connection string", owner, dedup.ErrSettings, setting, value,
			setting, want)
	}
	if conforming != "on" {
		return unfit("standard_conforming_strings", conforming, "on")
	}
	if nulls != "on" { // an absent tenant would become the text NULL
		return unfit("array_nulls", nulls, "on")
	}
	if encoding != "UTF8" && encoding != "SQL_ASCII" {
		// Go sends UTF-8, which the server would store as other characters
		return unfit("client_encoding", encoding, "UTF8")
	}
	var got []byte
	if err := scan(formatBytes, &got); output != "hex" &&
		(err != nil || !bytes.Equal(got, []byte{0, 0xff, '\\', 'A'})) {
		return unfit("bytea_output", output, "hex")
	} else if err != nil {
		return owner.Errorf("%s: read bytes: %w", owner, err)
	}
	var at time.Time
	if err := scan(formatTime, &at); err != nil || !at.Equal(time.Date(2001, 2, 3, 4, 5, 6, 789_012_000, time.UTC)) {
		if err == nil {
			err = fmt.Errorf("got %v", at)
		}
		if style[:min(3, len(style))] != "ISO" {
			return unfit("DateStyle", style, "ISO")
		}
		return owner.Errorf("%s: read a time: %w", owner, err)
	}
	return nil
}
