// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/kubedevice/kubedevice/pkg/documents/documentstest"
)

func TestCommandsOfDocumentsExistWithTheirFlags(t *testing.T) {
	for _, typed := range documentstest.Commands(t, "../../..", "kubecri") {
		command, rest, err := NewCommand(nil).Find(typed.Args)
		if err == nil {
			err = command.ParseFlags(rest)
		}
		if err == nil && !command.HasParent() {
			err = command.ValidateArgs(command.Flags().Args()) // an unknown command is an argument
		}
		if err != nil {
			t.Errorf("%s: kubecri %q: %v", typed.Page, typed.Args, err)
		}
	}
}

func TestEnrolHasTheAmericanSpellingToo(t *testing.T) {
	found, _, err := NewCommand(nil).Find([]string{"enroll"})
	if err != nil || found.Name() != "enrol" {
		t.Errorf("found %s, %v", found.Name(), err)
	}
}
