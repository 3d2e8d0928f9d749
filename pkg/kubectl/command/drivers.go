// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// driversOptions are the arguments of kubectl device drivers.
type driversOptions struct {
	output output
	env    *environment
}

func driversCommand(env *environment) *cobra.Command {
	o := &driversOptions{env: env}
	command := &cobra.Command{
		Use:     "drivers",
		Aliases: []string{"driver"},
		Short:   "Show what DRA drivers publish, and what of it the scheduler can use",
		Long: `Show the DRA drivers of the cluster: their devices, how many of them claims have, and what the scheduler
can use of what a driver publishes.

CLOSE BY has the attributes by which the scheduler puts devices of claims together, unless claimLevels
names others. A driver without any says nothing of how devices are connected: claims get the first
devices that fit.`,
		Example: `  # All drivers
  kubectl device drivers

  # With the attributes that each publishes
  kubectl device drivers -o wide`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.output.check(command); err != nil {
				return err
			}
			return o.run(command.Context())
		},
	}
	o.output.addFlags(command, asJSON, asYAML, wide)
	return command
}

func (o *driversOptions) run(ctx context.Context) error {
	reader, _, err := o.env.reader()
	if err != nil {
		return err
	}
	client, err := o.env.resources()
	if err != nil {
		return err
	}
	var published []resourceapi.ResourceSlice
	err = reader.Each(ctx, metav1.ListOptions{},
		func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.ResourceSlices().List(ctx, options)
		}, func(object runtime.Object) { published = append(published, *object.(*resourceapi.ResourceSlice)) })
	if err != nil {
		return cluster.Explain(err, "list", "resourceslices", "")
	}
	claims, err := listClaims(ctx, reader, client, corev1.NamespaceAll, "")
	if err != nil {
		return err
	}
	list := devices.NewDriverList(published, claims)
	switch {
	case !o.output.table():
		return printObject(o.env.Out, o.output.format, list)
	case len(list.Items) == 0:
		_, err := fmt.Fprintln(o.env.ErrOut, "No DRA drivers found: there are no ResourceSlices.")
		return err
	}
	return o.writeTable(list.Items)
}

func (o *driversOptions) writeTable(list []*devices.Driver) error {
	header := []string{"DRIVER", "NODES", "DEVICES", "ALLOCATED", "CLOSE BY", "NOTES"}
	if o.output.format == wide {
		header = []string{"DRIVER", "NODES", "DEVICES", "ALLOCATED", "CLOSE BY", "ATTRIBUTES", "NOTES"}
	}
	var rows []columns.Row
	for _, driver := range list {
		closeBy := columns.Text(shortNames(driver.CloseBy))
		if len(driver.CloseBy) == 0 {
			closeBy.Style = columns.Yellow
		}
		row := columns.Row{
			columns.Text(driver.Name), columns.Text(strconv.Itoa(driver.Nodes)),
			columns.Text(strconv.Itoa(driver.Devices)),
			columns.Text(strconv.Itoa(driver.Allocated)), closeBy,
		}
		if o.output.format == wide {
			row = append(row, columns.Text(strings.Join(driver.Attributes, ",")))
		}
		rows = append(rows, append(row, columns.Text(notesOf(driver))))
	}
	return o.output.writer(o.env, header...).Write(rows)
}

// shortNames returns attributes without the domain of Kubernetes' own.
func shortNames(attributes []string) string {
	return strings.ReplaceAll(strings.Join(attributes, ","), "resource.kubernetes.io/", "")
}

// notesOf says what the scheduler lacks of a driver.
func notesOf(driver *devices.Driver) string {
	var notes []string
	if len(driver.CloseBy) == 0 && driver.Devices > 0 {
		notes = append(notes, "publishes nothing of how devices are connected")
	}
	for _, feature := range driver.Features() {
		pools := "pools"
		if driver.LeftToUpstream[feature] == 1 {
			pools = "pool"
		}
		notes = append(notes, fmt.Sprintf("%s in %d %s: upstream's allocator chooses there", feature,
			driver.LeftToUpstream[feature], pools))
	}
	if driver.Unidentified > 0 {
		notes = append(notes, fmt.Sprintf("%d without UUID and PCI address", driver.Unidentified))
	}
	return strings.Join(notes, "; ")
}
