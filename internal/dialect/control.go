package dialect

import "strings"

// Control is what a string of PostgreSQL statements does to its transaction and session, as far as its text shows. The
// text does not show what a function does, and of a DO block it does not show the statements that the block builds from
// strings. Neither can end a transaction block.
type Control struct {
	Ends      bool // a statement ends the transaction
	Savepoint bool // a statement may set a savepoint, or roll back to one
	Several   bool // there is more than one statement
	Sets      bool // it changes a setting, for the transaction or for the session
	// something may outlive the transaction: a setting, a temporary table, a lock, LISTEN, a prepared statement
	Session bool
	// it may create a temporary table, which hides others of its name at least until the transaction ends
	Temporary bool
	Unclear   bool // the text may do more than Inspect understood
	// later statements of its handler may depend on it, so no other handler's statement may come in between
	Alone   bool
	Recalls bool // it reads the latest number that its session took from a sequence
}

// Inspect parses sql as PostgreSQL does with standard_conforming_strings on. It sets Unclear if there is something it
// does not understand.
func Inspect(sql string) (c Control) {
	s := scanner{sql: sql}
	statements := 0
	for {
		t := s.next()
		if t.kind == endOfText {
			break
		}
		if t.kind == semicolon {
			continue
		}
		statements++
		if s.statement(t, &c) == endOfText {
			break
		}
	}
	c.Several = statements > 1
	if !strings.ContainsAny(sql, " \t\r\n\f\v") { // it may be the name of a prepared statement
		c.unknown()
	}
	c.Unclear = c.Unclear || s.unclear
	c.Alone = c.Alone || statements != 1 || c.Savepoint || c.Sets || c.Session || c.Unclear
	return c
}

// statement parses one statement, which begins with token t, and returns the kind of token that ends it.
func (s *scanner) statement(t token, c *Control) tokenKind {
	var (
		words      [4]keyword // the first words
		n          int        // words so far
		before     keyword    // the previous token's word
		temporary  bool       // it creates a temporary table
		dropped    bool       // it says ON COMMIT DROP
		depth      int        // nesting of parentheses
		setAt      = -1       // depth of the call of set_config that is open, or -1
		setByLocal bool       // the latest argument of that call is the literal true
	)
	for ; t.kind != endOfText && t.kind != semicolon; t = s.next() {
		switch t.kind {
		case opens:
			depth++
		case closes:
			depth--
			if setAt >= 0 && depth <= setAt {
				c.Session = c.Session || !setByLocal
				setAt = -1
			}
		default:
		}
		word := t.word
		if t.kind == quoted && word != wordSetConfig && word != wordSessionLock && word != wordLock &&
			word != wordRecalls && word != wordTempSchema && word != wordSettings {
			word = wordOther // not a keyword, but it may name a function or schema
		}
		setByLocal = word == wordTrue
		switch {
		case word == wordSetConfig:
			c.Session = c.Session || setAt >= 0 // a call within the arguments of another one
			c.Sets, setAt = true, depth
		case word == wordSessionLock:
			c.Session = true
		case word == wordLock, before == wordFor && (word == wordUpdate || word == wordLocks):
			c.Alone = true
		case word == wordRecalls:
			c.Recalls = true
		case word == wordTempSchema, word == wordTemp && (words[0] == wordCreate || before == wordInto):
			temporary = true
		case word == wordDrop && before == wordCommit && n > 1:
			dropped = true
		case word == wordHold && words[0] == wordDeclare:
			c.Session = true
		case word == wordSettings: // an UPDATE of this view calls set_config(…, false)
			c.Sets, c.Session = true, c.Session || words[0] == wordUpdate
		case t.kind == stringToken && words[0] == wordDo:
			c.block(s.sql[t.at:s.at])
		case s.block && (word == wordBegin || word == wordThen): // another statement of the block follows
			words, n = [4]keyword{}, 0
			continue
		case word == wordAtomic && before == wordBegin && words[0] == wordCreate:
			c.Unclear = true // a body of statements follows, up to END
			s.at = len(s.sql)
		}
		if t.kind == wordToken || t.kind == quoted {
			if n < len(words) {
				words[n] = word
			}
			n++
		}
		before = word
	}
	c.Session = c.Session || setAt >= 0 || temporary && !dropped
	c.Temporary = c.Temporary || temporary
	c.control(words)
	c.Alone = c.Alone || temporary || words[0] != wordQuery && words[0] != wordUpdate
	return t.kind
}

// block records what the statements in body do to settings and to the session. body is the body of a DO block, with its
// quotes.
func (c *Control) block(body string) {
	in := Control{Session: strings.Contains(body, `\`)} // an escape may hide anything
	begin := strings.IndexAny(body, "'$")
	if body[begin] == '$' {
		begin += 1 + strings.IndexByte(body[begin+1:], '$') // behind a tag
	}
	s := scanner{sql: body[begin+1:], block: true}
	for t := s.next(); t.kind != endOfText; t = s.next() {
		s.statement(t, &in)
	}
	// any block may set or create something by EXECUTE
	c.Sets, c.Temporary, c.Session = true, true, c.Session || in.Session
}

// control records what a statement that begins with words does.
func (c *Control) control(words [4]keyword) {
	switch words[0] {
	case wordCommit, wordEnd, wordAbort:
		c.Ends = true
	case wordPrepare:
		if words[1] == wordTransaction {
			c.Ends = true
		} else {
			c.Session = true
		}
	case wordRollback:
		next := words[1]
		if next == wordWork || next == wordTransaction {
			next = words[2]
		}
		if next == wordTo {
			c.Savepoint = true
		} else {
			c.Ends = true
		}
	case wordSavepoint:
		c.Savepoint = true
	case wordSet:
		switch words[1] {
		case wordTransaction, wordConstraints: // not settings; they end with the transaction
		case wordLocal:
			c.Sets = true
		default:
			c.Sets, c.Session = true, true
		}
	case wordSession: // RESET, DISCARD, LISTEN, UNLISTEN, LOAD, DEALLOCATE
		c.Sets, c.Session = true, true
	case wordExecute:
		c.unknown()
	default: // no effect on the transaction or session
	}
}

// unknown records what a prepared statement may do whose text is unknown: use savepoints and change settings. Its
// command tag tells whether it ends the transaction.
func (c *Control) unknown() {
	c.Savepoint, c.Sets = true, true
}

type keyword uint8

const (
	wordOther keyword = iota
	wordAbort
	wordAtomic
	wordBegin
	wordCommit
	wordConstraints
	wordCreate
	wordDeclare
	wordDo
	wordDrop
	wordEnd
	wordExecute
	wordFor
	wordHold
	wordInto
	wordLocal
	wordLock
	wordLocks
	wordPrepare
	wordQuery
	wordRecalls
	wordRollback
	wordSavepoint
	wordSession
	wordSessionLock
	wordSet
	wordSetConfig
	wordSettings
	wordTemp
	wordTempSchema
	wordThen
	wordTo
	wordTransaction
	wordTrue
	wordUpdate
	wordWork
)

var keywords = map[string]keyword{
	"abort": wordAbort, "atomic": wordAtomic, "begin": wordBegin, "commit": wordCommit, "constraints": wordConstraints,
	"create": wordCreate, "declare": wordDeclare, "do": wordDo, "drop": wordDrop, "end": wordEnd,
	"execute": wordExecute, "hold": wordHold, "into": wordInto,
	"local": wordLocal, "prepare": wordPrepare, "rollback": wordRollback, "savepoint": wordSavepoint, "set": wordSet,
	"set_config": wordSetConfig, "temp": wordTemp, "temporary": wordTemp, "pg_temp": wordTempSchema, "to": wordTo,
	"transaction": wordTransaction, "true": wordTrue, "work": wordWork,

	"deallocate": wordSession, "discard": wordSession, "listen": wordSession, "load": wordSession, "reset": wordSession,
	"unlisten": wordSession,

	"select": wordQuery, "insert": wordQuery, "update": wordUpdate, "delete": wordQuery, "merge": wordQuery,
	"values": wordQuery, "with": wordQuery,

	// FOR NO KEY UPDATE, FOR SHARE, FOR KEY SHARE
	"for": wordFor, "no": wordLocks, "share": wordLocks, "key": wordLocks,
	"pg_advisory_xact_lock": wordLock, "pg_advisory_xact_lock_shared": wordLock,
	"pg_try_advisory_xact_lock": wordLock, "pg_try_advisory_xact_lock_shared": wordLock,

	"then": wordThen, "else": wordThen, "loop": wordThen, // a statement of a DO block follows

	"pg_settings": wordSettings,

	"currval": wordRecalls, "lastval": wordRecalls,

	"pg_advisory_lock": wordSessionLock, "pg_advisory_lock_shared": wordSessionLock,
	"pg_try_advisory_lock": wordSessionLock, "pg_try_advisory_lock_shared": wordSessionLock,
}

// longestKeyword is the length of pg_try_advisory_xact_lock_shared.
const longestKeyword = 32

// keywordOf looks up a word in any case without allocating.
func keywordOf(word string) keyword {
	if len(word) > longestKeyword {
		return wordOther
	}
	var lower [longestKeyword]byte
	for i := range len(word) {
		b := word[i]
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	return keywords[string(lower[:len(word)])]
}
