// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	// Error: the pod is refused, or does not get what it requests, on every cluster.
	Error Severity = "error"
	// Warning: something is without effect, or depends on the cluster.
	Warning Severity = "warning"
)

// Finding is one mistake in a manifest.
type Finding struct {
	File string `json:"file"`
	// Line and Column begin with 1. Columns count characters.
	Line     int      `json:"line"`
	Column   int      `json:"column"`
	Severity Severity `json:"severity"`
	// Object is kind and name of the object that the pod or the template is in.
	Object  string `json:"object"`
	Message string `json:"message"`
	// Word is the word that is wrong, if it is a word, and Nearest the known word that is most like
	// it, if one is.
	Word    string `json:"word,omitempty"`
	Nearest string `json:"nearest,omitempty"`
}

// String returns the finding in a line, in the form that editors know of compilers.
func (f Finding) String() string {
	text := fmt.Sprintf("%s:%d:%d: %s: %s", f.File, f.Line, f.Column, f.Severity, f.Message)
	if f.Nearest != "" {
		text += fmt.Sprintf("; did you mean %q?", f.Nearest)
	}
	return text
}

// FindingList is the findings of several files, in the order of the files and of their lines.
type FindingList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Finding `json:"items"`
}

// NewFindingList returns a list of findings, which may be nil.
func NewFindingList(findings []Finding) *FindingList {
	return &FindingList{TypeMeta: devices.TypeMeta("FindingList"), Items: append([]Finding{}, findings...)}
}
