package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// replacement is a change of a source text.
type replacement struct {
	from, to token.Pos
	text     string
}

// replaceText returns the source of f, where put replaces cut in the string literals of the row's node.
func (r row) replaceText(f *found) (string, error) {
	var all []replacement
	var failed error
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		expr, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		operands := operandsOf(expr)
		if !slices.ContainsFunc(operands, isText) {
			return true
		}
		text, err := f.replaceIn(operands, r.cut, r.put)
		if err != nil {
			failed = r.broken("%v", err)
		} else if text != "" {
			all = append(all, replacement{expr.Pos(), expr.End(), text})
			return false
		}
		for _, operand := range operands {
			if !isText(operand) {
				ast.Inspect(operand, visit)
			}
		}
		return false
	}
	ast.Inspect(f.node, visit)
	if failed != nil {
		return "", failed
	}
	if len(all) == 0 || r.cut == "" {
		return "", r.broken("no string of %s contains %q", r.sql, r.cut)
	}
	var b strings.Builder
	done := f.file.FileStart
	for _, c := range all {
		b.WriteString(f.text(done, c.from))
		b.WriteString(c.text)
		done = c.to
	}
	b.WriteString(f.text(done, f.file.FileEnd))
	return b.String(), nil
}

// operandsOf returns the operands of a chain of +, or the expression itself.
func operandsOf(expr ast.Expr) []ast.Expr {
	if sum, ok := expr.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
		return append(operandsOf(sum.X), operandsOf(sum.Y)...)
	}
	return []ast.Expr{expr}
}

func isText(expr ast.Expr) bool {
	lit, ok := expr.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING
}

// replaceIn returns the source of an expression that joins the operands with put in the place of cut, or "" if cut does
// not occur.
func (f *found) replaceIn(operands []ast.Expr, cut, put string) (string, error) {
	var text strings.Builder // of all operands
	var whose []int          // the operand of each byte
	for i, operand := range operands {
		part := "{" + f.text(operand.Pos(), operand.End()) + "}"
		if lit, ok := operand.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			var err error
			if part, err = strconv.Unquote(lit.Value); err != nil {
				return "", err
			}
		}
		text.WriteString(part)
		whose = append(whose, slices.Repeat([]int{i}, len(part))...)
	}
	all, done := text.String(), 0
	if cut == "" || !strings.Contains(all, cut) {
		return "", nil
	}
	var parts []string
	for done <= len(all) {
		at, end := len(all), len(all)+1
		if n := strings.Index(all[done:], cut); n >= 0 {
			at, end = done+n, done+n+len(cut)
		}
		kept, err := f.sourceOf(operands, all, whose, done, at)
		if err != nil {
			return "", err
		}
		parts = append(parts, kept...)
		if end <= len(all) && put != "" {
			parts = append(parts, strconv.Quote(put))
		}
		done = end
	}
	if len(parts) == 0 {
		return `""`, nil
	}
	return strings.Join(parts, " + "), nil
}

// sourceOf returns the expressions whose sum is all[from:to].
func (f *found) sourceOf(operands []ast.Expr, all string, whose []int, from, to int) (parts []string, err error) {
	for begin := from; begin < to; {
		end := begin
		for end < to && whose[end] == whose[begin] {
			end++
		}
		operand := operands[whose[begin]]
		source := f.text(operand.Pos(), operand.End())
		switch {
		case isText(operand):
			source = strconv.Quote(all[begin:end])
		case all[begin:end] != "{"+source+"}":
			return nil, fmt.Errorf("the cut ends within {%s}", source)
		}
		parts, begin = append(parts, source), end
	}
	return parts, nil
}
