package dialect

import (
	"reflect"
	"strings"
)

// sqliteTables puts the schema main before the names of txonce's tables in statements. A regular expression takes ten
// times as long, which was most of the time of a Store's construction.
var sqliteTables = func() *strings.Replacer {
	var pairs []string
	for _, word := range []string{"FROM ", "JOIN ", "INTO ", "UPDATE "} {
		for _, table := range []string{"processed_messages", "dead_letters", "entity_versions", "txonce_", "outbox_"} {
			pairs = append(pairs, word+table, word+"main."+table)
		}
	}
	return strings.NewReplacer(pairs...)
}()

// inMain qualifies the tables in every statement with the schema main. statements is a struct of strings. SQLite would
// otherwise look among the connection's temporary tables first, where a handler may have left one of the same name.
func inMain[T any](statements T) T {
	v := reflect.ValueOf(&statements).Elem()
	for i := range v.NumField() {
		v.Field(i).SetString(sqliteTables.Replace(v.Field(i).String()))
	}
	return statements
}
