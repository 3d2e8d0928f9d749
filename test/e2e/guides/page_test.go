// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// section is what a part of a guide has somebody do.
type section struct {
	commands []string // kubectl and kubecri, each with its arguments, in order
	files    map[string]string
}

var (
	// inline is a command within a sentence.
	inline = regexp.MustCompile("`((?:kubectl|kubecri) [^`]+)`")
	// named is a file's name, in the first line of what it holds.
	named = regexp.MustCompile(`^# (\S+\.yaml)\n`)
)

// readGuide returns the parts of a page of docs/deploy by their headings. NODE stands for a node,
// $REPO for the checkout.
func readGuide(t *testing.T, page, node string) map[string]section {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "docs", "deploy", page))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("$REPO", root, "NODE", node).Replace(string(content))
	sections := map[string]section{}
	for _, part := range strings.Split(text, "\n## ")[1:] {
		heading, rest, _ := strings.Cut(part, "\n")
		found := section{files: map[string]string{}}
		// Every second piece is in a fence.
		for i, piece := range strings.Split(rest, "\n```") {
			language, block, _ := strings.Cut(piece, "\n")
			name := named.FindStringSubmatch(block)
			switch {
			case i%2 == 0:
				for _, match := range inline.FindAllStringSubmatch(piece, -1) {
					found.commands = append(found.commands, match[1])
				}
			case language == "yaml" && name != nil:
				found.files[name[1]] = block
			default:
				for line := range strings.Lines(block) {
					if strings.HasPrefix(line, "kubectl ") || strings.HasPrefix(line, "kubecri ") {
						found.commands = append(found.commands, strings.TrimSpace(line))
					}
				}
			}
		}
		sections[heading] = found
	}
	return sections
}
