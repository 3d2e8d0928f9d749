// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// claimsOptions are the arguments of kubectl device claims.
type claimsOptions struct {
	selection
	env           *environment
	allNamespaces bool
}

func claimsCommand(env *environment) *cobra.Command {
	o := &claimsOptions{env: env}
	command := &cobra.Command{
		Use:     "claims [CLAIM...]",
		Aliases: []string{"claim"},
		Short:   "Show the devices of ResourceClaims, and which claims wait",
		Long: `Show the devices that ResourceClaims have of DRA drivers, the node where they are, and the pods that
use each claim or wait for it, with the scheduler's reason.

"Unused" marks a claim that keeps devices though no pod uses it.`,
		Example: `  # The claims of the current namespace
  kubectl device claims

  # Those of all namespaces
  kubectl device claims -A

  # The claims that keep devices from others without a pod
  kubectl device claims -A -o json | jq -r '.items[]
    | select(.state == "Unused") | "\(.namespace)/\(.name)"'`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, names []string) error {
			if err := o.take(command, names); err != nil {
				return err
			}
			if o.allNamespaces && len(names) > 0 {
				return &usageError{
					errors.New("a claim cannot be retrieved by name across all namespaces"), command.CommandPath(),
				}
			}
			return o.run(command.Context())
		},
	}
	o.addFlags(command, asJSON, asYAML, asNames, wide)
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false,
		"If present, list the claims of all namespaces. Namespace in current context is ignored even if specified "+
			"with --namespace.")
	return command
}

func (o *claimsOptions) run(ctx context.Context) error {
	reader, namespace, err := o.env.reader()
	if err != nil {
		return err
	}
	client, err := o.env.resources()
	if err != nil {
		return err
	}
	if o.allNamespaces {
		namespace = corev1.NamespaceAll
	}
	claims, missing := o.read(ctx, reader, client, namespace)
	if claims == nil && missing != nil {
		return missing
	}
	pods := map[[2]string][]*corev1.Pod{}
	if _, err := reader.Pods(ctx, cluster.Query{Namespace: namespace}, func(pod *corev1.Pod) bool {
		for _, name := range devices.ClaimsOf(pod) {
			claim := [2]string{pod.Namespace, name}
			pods[claim] = append(pods[claim], pod)
		}
		return false
	}); err != nil {
		return err
	}
	list := make([]*devices.Claim, len(claims))
	for i := range claims {
		list[i] = devices.NewClaim(&claims[i], pods[[2]string{claims[i].Namespace, claims[i].Name}])
	}
	return errors.Join(o.print(list, namespace), missing)
}

// read returns the claims that are meant. With an error for claims that are missing it returns the
// others.
func (o *claimsOptions) read(
	ctx context.Context, reader *cluster.Reader, client resourceclient.ResourceV1Interface, namespace string,
) (claims []resourceapi.ResourceClaim, missing error) {
	if len(o.names) == 0 {
		return listClaims(ctx, reader, client, namespace, o.selector)
	}
	for _, name := range o.names {
		claim, err := client.ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			missing = errors.Join(missing, cluster.Explain(err, "get", "resourceclaims", namespace))
			continue
		}
		claims = append(claims, *claim)
	}
	return claims, missing
}

func listClaims(
	ctx context.Context, reader *cluster.Reader, client resourceclient.ResourceV1Interface, namespace, selector string,
) (claims []resourceapi.ResourceClaim, err error) {
	err = reader.Each(ctx, metav1.ListOptions{LabelSelector: selector},
		func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.ResourceClaims(namespace).List(ctx, options)
		}, func(object runtime.Object) { claims = append(claims, *object.(*resourceapi.ResourceClaim)) })
	return claims, cluster.Explain(err, "list", "resourceclaims", namespace)
}

// print prints claims of a namespace, or of all.
func (o *claimsOptions) print(list []*devices.Claim, namespace string) error {
	switch {
	case o.output.table() && len(list) == 0:
		where := fmt.Sprintf("in %s namespace", namespace)
		if namespace == "" {
			where = "in any namespace"
		}
		_, err := fmt.Fprintf(o.env.ErrOut, "No resource claims found %s.\n", where)
		return err
	case o.output.table():
		return o.writeTable(list)
	case o.output.format == asNames:
		return printNames(o.env.Out, "resourceclaim/", list, func(c *devices.Claim) string { return c.Name })
	case len(o.names) == 1 && len(list) == 1:
		return printObject(o.env.Out, o.output.format, list[0])
	default:
		return printObject(o.env.Out, o.output.format, devices.NewClaimList(list))
	}
}

// writeTable writes a line for each device of each claim, and at least one for each claim.
func (o *claimsOptions) writeTable(list []*devices.Claim) error {
	header := []string{"CLAIM", "STATE", "NODE", "REQUEST", "DEVICE", "POD", "REASON"}
	if o.allNamespaces {
		header = slices.Insert(header, 0, "NAMESPACE")
	}
	var rows []columns.Row
	for _, claim := range list {
		for i := range max(1, len(claim.Devices), len(claim.Pods)) {
			var request, device, pod string
			if i < len(claim.Devices) {
				request, device = claim.Devices[i].Request, claim.Devices[i].String()
				if claim.Devices[i].Admin {
					device += " (admin)"
				}
			}
			if i < len(claim.Pods) {
				pod = claim.Pods[i]
			}
			rows = append(rows, o.row(claim, i == 0, request, device, pod))
		}
	}
	return o.output.writer(o.env, header...).Write(rows)
}

// row returns one line. What all lines of a claim have in common is on the first line alone where a
// person reads it, and so is that there is no more of a kind.
func (o *claimsOptions) row(claim *devices.Claim, first bool, request, device, pod string) columns.Row {
	brief := o.env.terminal.Tree && !first
	once := func(text string, style columns.Style) columns.Cell {
		if brief {
			return columns.Cell{}
		}
		cell := columns.Text(text)
		cell.Style = style
		return cell
	}
	optional := func(text string) columns.Cell {
		if brief && text == "" {
			return columns.Cell{}
		}
		return columns.Text(text)
	}
	style := map[devices.ClaimState]columns.Style{
		devices.ClaimAllocated: columns.Green, devices.ClaimUnused: columns.Yellow,
		devices.ClaimPending: columns.Yellow,
	}
	reason := claim.Reason()
	if o.output.format == wide {
		reason = claim.Message
	}
	row := columns.Row{
		once(claim.Name, columns.Plain), once(string(claim.State), style[claim.State]),
		once(claim.Node, columns.Plain), optional(request), optional(device), optional(pod),
		once(reason, columns.Plain),
	}
	if o.allNamespaces {
		row = slices.Insert(row, 0, once(claim.Namespace, columns.Plain))
	}
	return row
}
