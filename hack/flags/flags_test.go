// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubedevice/kubedevice/pkg/documents/documentstest"
	"github.com/kubedevice/kubedevice/pkg/kubectl/command"
	"github.com/kubedevice/kubedevice/pkg/node/app"
	"github.com/kubedevice/kubedevice/pkg/scheduler/config"
)

const (
	page = "../../docs/reference/flags.md"
	head = "# Flags\n\nThe [commands](../../hack/flags/flags_test.go) write this page: it has what `--help` prints. " +
		"Configuration files\nsay the same: [scheduler](scheduler-config.md), [kubecri](kubecri-config.md).\n"
	columns = 118 // of a line of flags
)

var rewrite = flag.Bool("rewrite", false, "write "+page)

func TestReferenceHasTheFlagsOfAllCommands(t *testing.T) {
	var want strings.Builder
	want.WriteString(head)
	fmt.Fprintf(&want, "\n## kube-scheduler\n\nIt has all flags of upstream's kube-scheduler, and these.\n")
	scheduler := pflag.NewFlagSet("devices", pflag.ContinueOnError)
	(&config.Flags{}).AddTo(scheduler)
	describeFlags(&want, scheduler)
	for _, program := range []*cobra.Command{app.NewCommand(nil), command.NewCommand()} {
		describe(&want, program, "##")
	}
	documentstest.Generated(t, page, want.String(), *rewrite, "go test ./hack/flags -rewrite")
}

// describe writes a command that users call, and then those below it.
func describe(out *strings.Builder, command *cobra.Command, heading string) {
	if !command.IsAvailableCommand() && command.HasParent() {
		return
	}
	path := strings.Replace(command.CommandPath(), "kubectl-device", "kubectl device", 1)
	fmt.Fprintf(out, "\n%s %s\n\n%s.\n", heading, path, command.Short)
	describeFlags(out, command.LocalFlags())
	for _, below := range command.Commands() {
		describe(out, below, "###")
	}
}

// ofHost is what a default says of the machine and the user.
var ofHost = regexp.MustCompile(` \(default "(/root|/home)[^)]*\)`)

func describeFlags(out *strings.Builder, flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		text := ofHost.ReplaceAllString(flags.FlagUsagesWrapped(columns), "")
		fmt.Fprintf(out, "\n```text\n%s\n```\n", strings.TrimRight(text, "\n"))
	}
}
