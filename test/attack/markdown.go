// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// head is what test/attack/README.md says before the tables.
const head = "# Table of attempts\n" + `
%d attempts, each made from the attacker's own identity on a real cluster, with what must come of it.
[Attacks](../../docs/reference/attacks.md) is the summary. ` + "`make attack`" + ` makes them all.
` + "`cd test && go run ./cmd/attack -print > attack/README.md`" + ` writes this page from [the files of the
attempts](attempts).

| outcome | meaning |
|---|---|
| API server | the API server refuses it, by a policy or for lack of a right |
| scheduler | the pod waits, and its event says why |
| node | the node refuses it; where it is a container, the pod's events say why |
| program | the program that is called refuses it |
| no effect | it is not refused, and the attacker gains nothing |
| **open** | it succeeds: in this run, the defence is not there |

Attempts of a table that says so are made in both [modes of kubecri](../../docs/deploy/frontends.md). Where the
outcome with NRI differs, it stands behind that of the proxy. What a container gets is read from the config.json that
the OCI runtime got.

Three outcomes, with a slash in between, are those with policies and seals, with seals alone, and with policies alone;
one is the same in all three. Below them is the text of the refusals. The last column says what is switched off for the
attempt to succeed; where it is empty, that is a cluster without policies and seals. %d attempts are marked as a
*neighbour*: they are in no report of a break, and were found by searching for more of the same kind.
`

// elsewhere is what test/attack/README.md says behind the tables, with ' for `, and ^ for '.
var elsewhere = strings.NewReplacer("'", "`", "^", "'").Replace(`
## What other tests show

A row has a tenant, a node or a plugin try something on a cluster within a minute. Tests of other kinds show the rest.

No node of these clusters has such a runtime, driver or clock:

| attempt | test |
|---|---|
| the clock is set back, and the checkpoint is lost after a device was replaced | 'pkg/node/grants/replace_test.go' |
| a pod names a device file to CRI-O by each name that the file may have | 'pkg/node/firewall/devicefiles_test.go' |
| NVIDIA^s runtime adds another vendor^s device where NVIDIA^s are the kubelet^s | 'pkg/node/firewall/foreign_test.go' |
| it does so before NVIDIA^s driver is loaded | 'pkg/node/firewall/foreign_test.go' |
| a container obeys Xilinx^s variables on a node with resources of amd.com | 'pkg/node/firewall/foreign_test.go' |
| containers make the runtime panic when 'kubecri enrol' connects to it | 'pkg/node/app/enrolnri_test.go' |

These take minutes, or thousands of objects:

| attempt | test |
|---|---|
| containers of a pod from before a takeover request all devices | 'pkg/node/admission/adoptedguard_test.go' |
| they do so while 'kubecri' is away (a takeover waits for a minute) | 'pkg/node/admission/inspect_test.go' |
| 1,100 containers of 0.5 MiB are not sent in the time that the runtime gives | 'pkg/node/nribound/list_test.go' |
| thousands of finished pods delay the registration by minutes | 'pkg/node/nrifrontend/prepare_test.go' |
| finished pods leave no room for the sandboxes of others | 'pkg/node/nrifrontend/endedsandboxes_test.go' |
| ended containers make the list of containers too long to read | 'pkg/node/nrilist/read_test.go' |
| finished pods make lists of the runtime too long to read after a restart | 'pkg/node/grants/runtime_test.go' |
| 10,000 keys that are nearly ours take the time of scheduler and node | 'pkg/request/annotations_test.go' |
| images with long descriptions take the time in which others are read | 'pkg/node/images/cache_test.go' |
| 40 exec probes with an output of 15 MiB each take the memory of the proxy | 'pkg/node/criproxy/answers_test.go' |
| random images and pods, in both modes, while 'kubecri' is killed | 'test/e2e/containers' |

These are about a single moment or byte:

| attempt | test |
|---|---|
| containers are created between the list and the registration | 'pkg/node/nrifrontend/afterlist_test.go' |
| a value that is not UTF-8 takes three times its size where the runtime stores it | 'pkg/node/nribound/bound_test.go' |
| an error that quotes text which is not UTF-8 has the runtime drop 'kubecri' | 'pkg/node/nri/handler_test.go' |

A quota of whole devices alone, such as 'requests.nvidia.com/gpu: 8', does not count shares of their memory, also with
'--device-quota=everywhere': a tenant can have all devices by shares of a little more than half. One of
'requests.nvidia.com/gpumem' counts both ('quota-shares-some', 'quota-shares-whole'), and one of 0 devices allows no
share ('quota-shares'). See [quotas](../../docs/use/quotas.md#quotas-of-shares).
`)

// Markdown returns test/attack/README.md. Its tables are HTML, whose lines can be broken.
func Markdown(attempts []*Attempt) string {
	var out strings.Builder
	var titles []string
	neighbours := 0
	for _, attempt := range attempts {
		if attempt.Neighbour {
			neighbours++
		}
		if !slices.Contains(titles, attempt.group) {
			titles = append(titles, attempt.group)
		}
	}
	fmt.Fprintf(&out, head, len(attempts), neighbours)
	for _, title := range titles {
		group := slices.DeleteFunc(slices.Clone(attempts), func(a *Attempt) bool { return a.group != title })
		both := slices.ContainsFunc(group, func(a *Attempt) bool { return len(a.Modes) > 1 })
		fmt.Fprintf(&out, "\n## %s\n", title)
		if both {
			out.WriteString("\nIn both modes.\n")
		}
		out.WriteString("\n<table>\n<tr><th>attempt</th><th>who, what</th><th>outcome</th><th>off</th></tr>\n")
		for _, attempt := range group {
			attempt.writeRow(&out, both)
		}
		out.WriteString("</table>\n")
	}
	out.WriteString(elsewhere)
	return out.String()
}

// writeRow writes the attempt's row, into a table of attempts that are made in both modes, or not.
func (a *Attempt) writeRow(out *strings.Builder, both bool) {
	notes := ""
	if both && len(a.Modes) == 1 {
		notes = "<br>" + modeNames[a.Modes[0]] + " alone"
	}
	if a.Neighbour {
		notes += "<br>neighbour"
	}
	fmt.Fprintf(out, "<tr><td><code>%s</code>%s</td>\n", a.ID, notes)
	writeWrapped(out, fmt.Sprintf("<td>%s %s</td>", a.Who, html.EscapeString(a.What)))
	writeWrapped(out, fmt.Sprintf("<td>%s</td>", a.outcomes()))
	writeWrapped(out, fmt.Sprintf("<td>%s</td></tr>", html.EscapeString(a.Off.How)))
}

// short are the outcomes as the page calls them.
var short = map[Outcome]string{
	RefusedByAPIServer: "API server", RefusedByNode: "node", RefusedByScheduler: "scheduler", NoEffect: "no effect",
	RefusedByProgram: "program", Succeeds: "<b>open</b>",
}

// modeNames are kubecri's modes as the page calls them.
var modeNames = map[cluster.Mode]string{cluster.ModeCRI: "proxy", cluster.ModeNRI: "NRI"}

// outcomes returns the attempt's outcomes by setting, and the text of its refusals, once for each
// mode in which they differ.
func (a *Attempt) outcomes() string {
	var texts []string
	for _, mode := range a.Modes {
		text := a.outcomesIn(mode)
		switch {
		case len(texts) == 0:
			texts = append(texts, text)
		case text != texts[0]:
			texts = append(texts, modeNames[mode]+": "+text)
		}
	}
	return strings.Join(texts, "<br>")
}

// outcomesIn returns the attempt's outcomes in one mode.
func (a *Attempt) outcomesIn(mode cluster.Mode) string {
	var names, words []string
	for _, setting := range []Setting{Both, SealsAlone, PoliciesAlone} {
		want := a.wanted(mode, setting)
		names = append(names, cmp.Or(short[want.Outcome], "?"))
		if want.Words != "" && !slices.Contains(words, want.Words) {
			words = append(words, want.Words)
		}
	}
	if len(slices.Compact(slices.Clone(names))) == 1 {
		names = names[:1]
	}
	text := strings.Join(names, " / ")
	for _, word := range words {
		text += "<br><i>" + html.EscapeString(word) + "</i>"
	}
	return text
}

// writeWrapped writes a text in lines that are not too long.
func writeWrapped(out *strings.Builder, text string) {
	const width = 118
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			out.WriteByte('\n')
			column = 0
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += len(word)
	}
	out.WriteByte('\n')
}
