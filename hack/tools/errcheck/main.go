// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command errcheck reports calls whose error is dropped, as a tool of "go vet", which keeps the
// result of each package until the package changes:
//
//	go vet -vettool=_output/tools/errcheck ./...
//
// Which calls count is decided by github.com/kisielk/errcheck. Where an error may be dropped, a
// comment on the line of the call, or on a line of its own above, says why:
//
//	defer file.Close() //nolint:errcheck // opened for reading
//
// Some functions need no reason, see exempt. A directive without a reason, for another linter, or
// where no error is dropped, is reported too.
package main

import (
	"cmp"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"

	"github.com/kisielk/errcheck/errcheck"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/unitchecker"
)

func main() { unitchecker.Main(analyzer) }

var analyzer = &analysis.Analyzer{
	Name: "errcheck",
	Doc:  "report dropped errors, and directives that allow none",
	Run:  run,
}

// wellFormed matches a directive that names this linter and has a reason.
var wellFormed = regexp.MustCompile(`^//nolint:errcheck // \S`)

// line is a line of a file.
type line struct {
	file   string
	number int
}

// directive is one comment, and the line whose dropped errors it allows.
type directive struct {
	comment *ast.Comment
	allows  line
	used    bool
}

func run(pass *analysis.Pass) (any, error) {
	var directives []*directive
	for _, file := range pass.Files {
		directives = append(directives, directivesOf(pass.Fset, file)...)
	}
	quiet := *pass
	quiet.Report = func(analysis.Diagnostic) {} // what it reports does not name the function
	result, err := errcheck.Analyzer.Run(&quiet)
	if err != nil {
		return nil, err
	}
	for _, found := range result.(errcheck.Result).UncheckedErrors {
		if exempt(found) {
			continue
		}
		at := line{found.Pos.Filename, found.Pos.Line}
		i := slices.IndexFunc(directives, func(d *directive) bool {
			return d.allows == at && strings.HasPrefix(d.comment.Text, "//nolint:errcheck")
		})
		if i >= 0 {
			directives[i].used = true
			continue
		}
		pass.Reportf(positionOf(pass, found.Pos), "the error of %s is dropped: return it, log it, or say why not "+
			"after //nolint:errcheck //", cmp.Or(found.SelectorName, found.FuncName, "a function"))
	}
	for _, d := range directives {
		switch {
		case !wellFormed.MatchString(d.comment.Text):
			pass.Reportf(d.comment.Pos(), "write the directive as //nolint:errcheck // reason; only errcheck reads one")
		case !d.used:
			pass.Reportf(d.comment.Pos(), "no error is dropped here: delete the directive")
		}
	}
	return nil, nil
}

// exempt reports whether the error of a function may be dropped without a reason. Printing fails
// when the reader has gone, and Flush returns what a table could not write. Removing is cleaning
// up. Closing loses nothing but the end of a file that was written, which only programs write that
// matter.
func exempt(found errcheck.UncheckedError) bool {
	switch name := cmp.Or(found.FuncName, found.SelectorName); {
	case strings.HasPrefix(name, "fmt.Fprint"), name == "os.Remove", name == "os.RemoveAll",
		name == "(*math/rand/v2.ChaCha8).Read": // which never fails
		return true
	case name == "(*os.File).Close":
		return strings.HasSuffix(found.Pos.Filename, "_test.go")
	default:
		return strings.HasSuffix(name, ".Close") || strings.HasSuffix(name, ".CloseSend") ||
			strings.HasSuffix(name, ".CloseWrite")
	}
}

// positionOf returns the position in the package's files that a position in text stands for.
func positionOf(pass *analysis.Pass, at token.Position) token.Pos {
	for _, file := range pass.Files {
		if read := pass.Fset.File(file.FileStart); read.Name() == at.Filename {
			return read.Pos(at.Offset)
		}
	}
	return token.NoPos
}

// directivesOf returns the directives of a file. One that follows code allows its own line, one on
// a line of its own the next.
func directivesOf(files *token.FileSet, file *ast.File) []*directive {
	code := map[line]bool{} // the lines on which code ends, before any comment
	ast.Inspect(file, func(node ast.Node) bool {
		switch node.(type) {
		case nil, *ast.Comment, *ast.CommentGroup:
			return false
		}
		code[lineOf(files, node.Pos())], code[lineOf(files, node.End())] = true, true
		return true
	})
	var found []*directive
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if !strings.HasPrefix(comment.Text, "//nolint") {
				continue
			}
			allows := lineOf(files, comment.Pos())
			if !code[allows] {
				allows.number++
			}
			found = append(found, &directive{comment: comment, allows: allows})
		}
	}
	return found
}

func lineOf(files *token.FileSet, at token.Pos) line {
	position := files.Position(at)
	return line{position.Filename, position.Line}
}
