package oncecheck

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// ignores has the comments //once:ignore reason of a package.
type ignores struct {
	fset  *token.FileSet
	lines map[string]ignored // by file:line of the code that the comment is about
}

type ignored int

const (
	notIgnored ignored = iota
	ignoredWithReason
	ignoredWithoutReason // counts for nothing
)

// readIgnores reads the comments. One behind code is about its own line, one that is alone on a line about the next.
func readIgnores(pass *analysis.Pass) *ignores {
	all := &ignores{pass.Fset, map[string]ignored{}}
	for _, file := range pass.Files {
		var code map[int]bool
		for _, group := range file.Comments {
			for _, c := range group.List {
				text, ok := strings.CutPrefix(c.Text, "//once:ignore")
				if !ok {
					continue
				}
				if code == nil {
					code = linesOfCode(pass.Fset, file)
				}
				at := pass.Fset.Position(c.Pos())
				if !code[at.Line] {
					at.Line = pass.Fset.Position(group.End()).Line + 1
				}
				if reason, _, _ := strings.Cut(text, "//"); strings.TrimSpace(reason) == "" {
					all.lines[lineKey(at)] = ignoredWithoutReason
				} else {
					all.lines[lineKey(at)] = ignoredWithReason
				}
			}
		}
	}
	return all
}

// linesOfCode returns the lines on which a part of the syntax begins or ends.
func linesOfCode(fset *token.FileSet, file *ast.File) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case nil:
			return true
		case *ast.CommentGroup, *ast.Comment:
			return false
		}
		lines[fset.Position(n.Pos()).Line] = true
		lines[fset.Position(n.End()-1).Line] = true
		return true
	})
	return lines
}

func lineKey(p token.Position) string { return p.Filename + ":" + strconv.Itoa(p.Line) }

func (i *ignores) at(pos token.Pos) ignored { return i.lines[lineKey(i.fset.Position(pos))] }

// where returns file:line of a position, as messages about other packages show it.
func (a *analysisOf) where(pos token.Pos) string {
	p := a.pass.Fset.Position(pos)
	return filepath.Base(p.Filename) + ":" + strconv.Itoa(p.Line)
}
