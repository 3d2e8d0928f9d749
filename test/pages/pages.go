// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pages finds the commands of documents that tests run. A block of commands has a comment
// in the line before it:
//
//	<!-- run by test/e2e/guides -->
//	<!-- not run: it publishes a release -->
//
// hack/rules fails where a block has none.
package pages

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Block is one block of commands.
type Block struct {
	Page string // from the root of the source tree, with slashes
	Line int    // of its mark, from 1
	// Script has the commands, for a shell: all of a block of sh, and of a block of console what
	// comes after "$ ".
	Script string
}

func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// MarkedFor returns the blocks of all documents of the source tree at root that are marked to be
// run by a directory, such as test/e2e/guides: in order, by pages. It is an error if there is none.
func MarkedFor(root, directory string) ([]Block, error) {
	var found []Block
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		page, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		found = append(found, marked(filepath.ToSlash(page), string(content), directory)...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the commands of documents: %w", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("read the commands of documents: no block of %s is marked for %s", root, directory)
	}
	return found, nil
}

// marked returns the blocks of one page.
func marked(page, content, directory string) []Block {
	var found []Block
	lines := strings.Split(content, "\n")
	for i := 0; i < len(lines); i++ {
		if strings.TrimSpace(lines[i]) != "<!-- run by "+directory+" -->" || i+1 == len(lines) {
			continue
		}
		b := Block{Page: page, Line: i + 1}
		i++
		fence := strings.TrimLeft(lines[i], " ")
		indent := strings.TrimSuffix(lines[i], fence)
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			line, command := strings.TrimPrefix(lines[i], indent), true
			if fence == "```console" {
				line, command = strings.CutPrefix(line, "$ ")
			}
			if command {
				b.Script += line + "\n"
			}
		}
		found = append(found, b)
	}
	return found
}
