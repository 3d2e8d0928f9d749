// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/kubedevice/kubedevice/pkg/documents/documentstest"
)

func TestCommandsOfDocumentsExistWithTheirFlags(t *testing.T) {
	for _, typed := range documentstest.Commands(t, "../../..", "kubectl device") {
		all := newCommand(&environment{now: time.Now})
		genericclioptions.NewConfigFlags(true).AddFlags(all.PersistentFlags())
		addVerbosity(all)
		command, rest, err := all.Find(typed.Args)
		if err == nil && !command.Runnable() && len(rest) > 0 {
			t.Errorf("%s: kubectl device %q: there is no such command", typed.Page, typed.Args)
			continue
		}
		if err == nil {
			err = command.ParseFlags(rest)
		}
		if err != nil {
			t.Errorf("%s: kubectl device %q: %v", typed.Page, typed.Args, err)
		}
	}
}

func TestEnrolHasTheAmericanSpellingToo(t *testing.T) {
	found, _, err := newCommand(&environment{now: time.Now}).Find([]string{"enroll", "gpu-7"})
	if err != nil || found.Name() != "enrol" {
		t.Errorf("found %s, %v", found.Name(), err)
	}
}
