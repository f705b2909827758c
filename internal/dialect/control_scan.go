package dialect

import "strings"

type tokenKind uint8

const (
	endOfText tokenKind = iota
	semicolon
	wordToken // a keyword or a name
	quoted    // a name in double quotes
	opens     // (
	closes    // )
	stringToken
	other // a number, an operator, a parameter
)

type token struct {
	kind tokenKind
	word keyword
	at   int // where a string begins
}

// scanner splits SQL into tokens by PostgreSQL's rules, as far as needed to find the ends of strings, comments and
// statements.
type scanner struct {
	sql     string
	at      int
	block   bool // sql is the body of a DO block
	unclear bool // a string or comment does not end, or a string may continue on another line
}

func (s *scanner) next() token {
	s.skipSpace()
	if s.at >= len(s.sql) {
		return token{kind: endOfText}
	}
	from := s.at
	switch b := s.sql[s.at]; {
	case b == ';':
		s.at++
		return token{kind: semicolon}
	case b == '(':
		s.at++
		return token{kind: opens}
	case b == ')':
		s.at++
		return token{kind: closes}
	case b == '\'':
		s.text(false)
		return token{kind: stringToken, at: from}
	case b == '"':
		s.at = s.closing(from+1, '"', false)
		return token{kind: quoted, word: keywordOf(s.sql[from+1 : max(from+1, s.at-1)])}
	case b == '$':
		s.dollar()
		return token{kind: stringToken, at: from}
	case startsName(b):
		return s.name()
	default:
		s.at++
	}
	return token{kind: other}
}

// skipSpace skips white space and comments. Block comments nest; a line comment ends at \n or \r.
func (s *scanner) skipSpace() {
	for s.at < len(s.sql) {
		rest := s.sql[s.at:]
		switch {
		case strings.IndexByte(" \t\r\n\f\v", rest[0]) >= 0:
			s.at++
		case strings.HasPrefix(rest, "--"):
			if n := strings.IndexAny(rest, "\r\n"); n >= 0 {
				s.at += n + 1
			} else {
				s.at = len(s.sql)
			}
		case strings.HasPrefix(rest, "/*"):
			s.skipBlock()
		default:
			return
		}
	}
}

func (s *scanner) skipBlock() {
	depth := 0
	for s.at < len(s.sql) {
		rest := s.sql[s.at:]
		switch {
		case strings.HasPrefix(rest, "/*"):
			depth, s.at = depth+1, s.at+2
		case strings.HasPrefix(rest, "*/"):
			if depth, s.at = depth-1, s.at+2; depth == 0 {
				return
			}
		default:
			s.at++
		}
	}
	s.unclear = true
}

// name reads a name or a string such as E'…'.
func (s *scanner) name() token {
	from := s.at
	for s.at < len(s.sql) && (startsName(s.sql[s.at]) || isDigit(s.sql[s.at]) || s.sql[s.at] == '$') {
		s.at++
	}
	word := s.sql[from:s.at]
	if (word == "e" || word == "E") && s.at < len(s.sql) && s.sql[s.at] == '\'' {
		s.text(true)
		return token{kind: stringToken, at: from}
	}
	return token{kind: wordToken, word: keywordOf(word)}
}

// text reads a string in single quotes. If escapes is true, a string on a later line may continue it.
func (s *scanner) text(escapes bool) {
	for s.at < len(s.sql) && s.sql[s.at] == '\'' {
		s.at = s.closing(s.at+1, '\'', escapes)
		if !escapes {
			return
		}
		s.skipSpace()
		s.unclear = s.unclear || s.at < len(s.sql) && s.sql[s.at] == '\''
	}
}

// closing returns the position after the quote that closes a string or name whose content begins at from.
func (s *scanner) closing(from int, quote byte, escapes bool) int {
	for i := from; i < len(s.sql); i++ {
		switch {
		case escapes && s.sql[i] == '\\':
			i++
		case s.sql[i] != quote:
		case i+1 < len(s.sql) && s.sql[i+1] == quote:
			i++
		default:
			return i + 1
		}
	}
	s.unclear = true
	return len(s.sql)
}

// dollar reads a dollar-quoted string, or the dollar sign of a parameter.
func (s *scanner) dollar() {
	end := s.at + 1
	for end < len(s.sql) && (startsName(s.sql[end]) || end > s.at+1 && isDigit(s.sql[end])) {
		end++
	}
	if end >= len(s.sql) || s.sql[end] != '$' {
		s.at++
		return
	}
	tag := s.sql[s.at : end+1]
	n := strings.Index(s.sql[end+1:], tag)
	if n < 0 {
		s.unclear, s.at = true, len(s.sql)
		return
	}
	s.at = end + 1 + n + len(tag)
}

// startsName reports whether a name may begin with b: any byte above ASCII may.
func startsName(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' || b == '_' || b >= 0x80 }

func isDigit(b byte) bool { return b >= '0' && b <= '9' }
