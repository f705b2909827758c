package dialect

import "strings"

// EndsTransaction reports whether sql begins with a statement that ends the transaction it is sent in. It looks at the
// first keyword only: what else a string may hide is found by asking the server before COMMIT.
func EndsTransaction(sql string) bool {
	word, rest := keyword(sql)
	switch word {
	case "commit", "end", "abort":
		return true
	case "prepare":
		next, _ := keyword(rest)
		return next == "transaction"
	case "rollback":
		next, rest := keyword(rest)
		if next == "work" || next == "transaction" {
			next, _ = keyword(rest)
		}
		return next != "to"
	}
	return false
}

// MovesSavepoint reports whether sql may set a savepoint or roll back to one. A name of a prepared statement may: what is
// behind it is not to be seen here.
func MovesSavepoint(sql string) bool {
	switch word, _ := keyword(sql); word {
	case "savepoint":
		return true
	case "rollback":
		return !EndsTransaction(sql)
	}
	return !strings.ContainsAny(sql, " \t\r\n\f\v")
}

// Several reports whether sql may be more than one statement. It does not know strings from statements, and errs on the
// side of yes.
func Several(sql string) bool {
	first := strings.IndexByte(sql, ';')
	return first >= 0 && skip(sql[first:]) != ""
}

// keyword returns the first word of sql in lower case, behind white space, comments and empty statements, and what
// follows it.
func keyword(sql string) (word, rest string) {
	sql = skip(sql)
	n := 0
	for n < len(sql) && (sql[n]|0x20 >= 'a' && sql[n]|0x20 <= 'z' || sql[n] == '_') {
		n++
	}
	return strings.ToLower(sql[:n]), sql[n:]
}

// skip drops white space, semicolons and comments, nested ones too.
func skip(sql string) string {
	for {
		sql = strings.TrimLeft(sql, " \t\r\n\f\v;")
		switch {
		case strings.HasPrefix(sql, "--"):
			_, sql, _ = strings.Cut(sql, "\n")
		case strings.HasPrefix(sql, "/*"):
			depth, i := 1, 2
			for i < len(sql) && depth > 0 {
				switch {
				case strings.HasPrefix(sql[i:], "/*"):
					depth, i = depth+1, i+2
				case strings.HasPrefix(sql[i:], "*/"):
					depth, i = depth-1, i+2
				default:
					i++
				}
			}
			sql = sql[i:]
		default:
			return sql
		}
	}
}
