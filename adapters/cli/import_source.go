package cli

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// sourceFlags say where the keys of an import are.
type sourceFlags struct {
	table, query, file       string
	keyColumns, forms        []string
	tenantColumn, timeColumn string
	noTime                   bool
}

func (f *sourceFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.table, "from", "", "the table with the keys of processed messages, as in SQL: old_processed or app.old_processed")
	flags.StringVar(&f.query, "query", "", "instead of --from: SQL that returns the columns, such as SELECT lower(id) AS id, at FROM old_processed")
	flags.StringVar(&f.file, "from-file", "", "instead of --from: a `file` with one key in each line; - is the standard input")
	flags.StringSliceVar(&f.keyColumns, "key-column", nil, "the column with the business key; several are joined as JSONKey joins several fields")
	flags.StringSliceVar(&f.forms, "key-form", []string{formText}, "what Config.Key makes of the column's text: text, the same text; json-string, what JSONKey returns for a JSON string, which has quotes if the text reads as JSON, as a number does. One for each --key-column, or one for all")
	flags.StringVar(&f.tenantColumn, "tenant-column", "", "the column with the tenant of each key")
	flags.StringVar(&f.timeColumn, "time-column", "", "when the message was processed, or created: rows that are older than the consumer's window and a day are left out. Numbers are seconds, milliseconds, microseconds or nanoseconds since 1970")
	flags.BoolVar(&f.noTime, "no-time", false, "the table has no such column: all rows are imported. Each key is kept for the window from now on, however old it is")
}

func (f *sourceFlags) check() error {
	given := 0
	for _, from := range []string{f.table, f.query, f.file} {
		if from != "" {
			given++
		}
	}
	switch {
	case given != 1:
		return Usage(errors.New("want one of --from, --query and --from-file"))
	case f.file != "" && (len(f.keyColumns) > 0 || f.tenantColumn != "" || f.timeColumn != ""):
		return Usage(errors.New("--from-file has one key in each line, and no columns: leave out --key-column, --tenant-column and --time-column"))
	case f.file == "" && len(f.keyColumns) == 0:
		return Usage(errors.New("--key-column is required"))
	case f.file == "" && (f.timeColumn == "") == !f.noTime:
		return Usage(errors.New("want --time-column, so that rows older than the consumer's window are left out, or --no-time: then all rows are imported"))
	case len(f.forms) != 1 && len(f.forms) != len(f.keyColumns):
		return Usage(fmt.Errorf("--key-form has %d values for %s: want one for each, or one for all", len(f.forms),
			count(len(f.keyColumns), "--key-column")))
	}
	for _, form := range f.forms {
		if form != formText && form != formJSON {
			return Usage(fmt.Errorf("--key-form %q: want %s or %s", form, formText, formJSON))
		}
	}
	return nil
}

// name names the source for people.
func (f *sourceFlags) name() string {
	switch {
	case f.table != "":
		return f.table
	case f.query != "":
		return "--query"
	case f.file == "-":
		return "the standard input"
	}
	return f.file
}

// sourceRow is one row as it was read. A part that is NULL is not valid.
type sourceRow struct {
	parts  []sql.NullString // of --key-column
	tenant sql.NullString
	at     time.Time // zero: unknown
}

// each calls f for each row. The row is reused.
func (f *sourceFlags) each(ctx context.Context, db *Database, in io.Reader, do func(*sourceRow) error) error {
	if f.file != "" {
		return f.eachLine(in, do)
	}
	if db.SQL == nil {
		return refused("this program cannot read tables: its Config.Open sets no Database.SQL")
	}
	rows, err := db.SQL.QueryContext(ctx, f.statement(db.Dialect))
	if err != nil {
		return fmt.Errorf("read %s: %w", f.name(), err)
	}
	defer rows.Close()
	row := sourceRow{parts: make([]sql.NullString, len(f.keyColumns))}
	var at any
	var to []any
	for i := range row.parts {
		to = append(to, &row.parts[i])
	}
	if f.tenantColumn != "" {
		to = append(to, &row.tenant)
	}
	if f.timeColumn != "" {
		to = append(to, &at)
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return fmt.Errorf("read %s: %w", f.name(), err)
		}
		if row.at, err = timeOf(at); err != nil {
			return Usage(fmt.Errorf("--time-column %s: %w", f.timeColumn, err))
		}
		if err := do(&row); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read %s: %w", f.name(), err)
	}
	return nil
}

// statement returns the SELECT. The database makes text of keys: drivers differ in what they make of a UUID.
func (f *sourceFlags) statement(dialect string) string {
	text := map[string]string{"postgres": "text", "mysql": "char", "sqlite": "text"}[dialect]
	var columns []string
	for _, c := range f.keyColumns {
		columns = append(columns, "CAST("+c+" AS "+text+")")
	}
	if f.tenantColumn != "" {
		columns = append(columns, "CAST("+f.tenantColumn+" AS "+text+")")
	}
	if f.timeColumn != "" {
		columns = append(columns, f.timeColumn)
	}
	from := f.table
	if f.query != "" {
		from = "(" + strings.TrimRight(f.query, "; \t\r\n") + "\n) AS source"
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + from
}

func (f *sourceFlags) eachLine(in io.Reader, do func(*sourceRow) error) error {
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return Usage(fmt.Errorf("--from-file: %w", err))
		}
		defer file.Close()
		in = file
	}
	return eachLine(in, f.name(), func(line string) error {
		return do(&sourceRow{parts: []sql.NullString{{String: line, Valid: true}}})
	})
}

// eachLine calls do for each line, without its end. Nothing else is cut off: a space may belong to a key. Line ends of
// Windows are refused, and not cut off: keys of both files would have them, so comparing would not show it.
func eachLine(in io.Reader, file string, do func(line string) error) error {
	lines := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err != nil && line == "" {
			return nil
		}
		line = strings.TrimSuffix(line, "\n")
		if strings.HasSuffix(line, "\r") {
			return Usage(fmt.Errorf("%s: line %d ends with CR LF, and the CR would belong to the key: convert the file, for example with tr -d '\\r'", file, n))
		}
		if err := do(line); err != nil {
			return err
		}
	}
}

// timeOf reads a value of --time-column. A time without a zone is in UTC; a day more than the window forgives that.
func timeOf(value any) (time.Time, error) {
	switch v := value.(type) {
	case nil:
		return time.Time{}, nil
	case time.Time:
		return v, nil
	case int64:
		return sinceEpoch(float64(v))
	case float64:
		return sinceEpoch(v)
	case []byte:
		return timeOf(string(v))
	case string:
		if n, err := strconv.ParseFloat(v, 64); err == nil {
			return sinceEpoch(n)
		}
		for _, layout := range []string{
			time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07",
			"2006-01-02T15:04:05.999999999", time.DateTime, time.DateOnly,
		} {
			if t, err := time.Parse(layout, v); err == nil {
				return t, nil
			}
		}
		return time.Time{}, fmt.Errorf("%q is not a time: want a column with times, such as 2026-11-24 10:07:00, or with a number since 1970", v)
	}
	return time.Time{}, fmt.Errorf("%v (%T) is not a time", value, value)
}

// sinceEpoch reads a number since 1970. Seconds, milliseconds, microseconds and nanoseconds of our time differ in size.
func sinceEpoch(n float64) (time.Time, error) {
	for _, unit := range []float64{1, 1e3, 1e6, 1e9} {
		if seconds := n / unit; seconds > 3e8 && seconds < 3e10 { // 1979 to 2920
			return time.UnixMicro(int64(math.Round(seconds * 1e6))), nil
		}
	}
	return time.Time{}, fmt.Errorf("%v is no number of seconds, milliseconds, microseconds or nanoseconds since 1970", n)
}
