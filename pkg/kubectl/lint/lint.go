// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubedevice/kubedevice/pkg/request"
)

// File returns what is wrong in a file of that name, in the order of its lines. cluster is nil if
// the file is to be compared with none.
//
// An error says where the file is no YAML. What was found before that is returned too.
func File(name string, content []byte, cluster *Cluster) ([]Finding, error) {
	plain := strings.TrimPrefix(string(content), "\ufeff") // the mark of an encoding
	l := &linter{file: name, text: newText(plain), cluster: cluster}
	found, err := templates(plain)
	for _, t := range found {
		l.object, l.path = t.object, t.path
		l.lint(t)
	}
	if err != nil {
		err = unreadable(name, err)
	}
	slices.SortFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	// A template that is used several times is wrong once.
	return slices.CompactFunc(l.findings, func(a, b Finding) bool {
		return a.Line == b.Line && a.Column == b.Column && a.Message == b.Message
	}), err
}

// linter collects the findings of a file.
type linter struct {
	file     string
	text     *text
	cluster  *Cluster // nil: none
	object   string   // that is looked at
	path     string   // of the template in it, see template
	findings []Finding
}

// add adds a finding at a place of the text.
func (l *linter) add(severity Severity, place int, format string, args ...any) *Finding {
	line, column := l.text.position(place)
	message := fmt.Sprintf(format, args...)
	if l.path != "" {
		message = l.path + ": " + message
	}
	l.findings = append(l.findings, Finding{
		File: l.file, Line: line, Column: column, Severity: severity, Object: l.object, Message: message,
	})
	return &l.findings[len(l.findings)-1]
}

// addAt adds a finding at a node of the YAML.
func (l *linter) addAt(severity Severity, node *yaml.Node, format string, args ...any) *Finding {
	return l.add(severity, l.text.begin(node), format, args...)
}

// suggest names the word that is wrong, and looks for one that is known.
func (f *Finding) suggest(word string, known []string) {
	f.Word, f.Nearest = word, request.Nearest(word, known)
}

// lint checks one pod or template.
func (l *linter) lint(t template) {
	pod := l.readPod(t)
	l.checkLimits(pod)
	for _, e := range entries(get(t.metadata, "annotations")) {
		if e.key.Value == annotationKey {
			l.checkAnnotation(pod, e)
		}
	}
	l.checkNames(t, pod)
	l.checkAnnotations(t, pod)
	l.checkNodeName(t, pod)
}
