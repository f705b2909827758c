package dialect

import (
	"reflect"
	"regexp"
)

// sqliteTables matches the names of txonce's tables in statements.
var sqliteTables = regexp.MustCompile(`\b(FROM|JOIN|INTO|UPDATE) (processed_messages|dead_letters|txonce_\w+|outbox_\w+)`)

// inMain qualifies the tables in every statement with the schema main. statements is a struct of strings. SQLite would otherwise
// look among the connection's temporary tables first, where a handler may have left one of the same name.
func inMain[T any](statements T) T {
	v := reflect.ValueOf(&statements).Elem()
	for i := range v.NumField() {
		v.Field(i).SetString(sqliteTables.ReplaceAllString(v.Field(i).String(), "$1 main.$2"))
	}
	return statements
}
