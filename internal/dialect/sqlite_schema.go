package dialect

import (
	"reflect"
	"regexp"
)

// sqliteTables finds the names of tables where a statement names one.
var sqliteTables = regexp.MustCompile(`\b(FROM|JOIN|INTO|UPDATE) (processed_messages|dead_letters|txonce_\w+|outbox_\w+)`)

// inMain has every statement of statements, a struct of strings, name the schema of its tables: SQLite looks for a name among the
// connection's temporary tables first, which a handler may have left there.
func inMain[T any](statements T) T {
	v := reflect.ValueOf(&statements).Elem()
	for i := range v.NumField() {
		v.Field(i).SetString(sqliteTables.ReplaceAllString(v.Field(i).String(), "$1 main.$2"))
	}
	return statements
}
