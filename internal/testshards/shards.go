package main

import (
	"slices"
	"strings"
)

// shard is a part of the tests that one process runs.
type shard struct {
	name     string
	packages []string
	only     string   // a pattern of go test -run; "": all tests
	not      []string // patterns of what other shards of the package run
}

const (
	module = "github.com/anylock/anylock"

	redis       = module + "/backend/redis"
	postgres    = module + "/backend/postgres"
	conformance = module + "/conformance"
)

// apart are the tests that have a shard of their own. What is not named here runs in its package's
// rest, or, if the package is not named here, with all such packages: no test can be forgotten.
var apart = []shard{
	{name: "postgres/lease", packages: []string{postgres}, only: "^TestConformanceLease$"},
	{name: "postgres/rowlock", packages: []string{postgres}, only: "^TestConformanceRowLock$"},
	{name: "postgres/adopted", packages: []string{postgres}, only: "^TestConformanceAdopted$"},
	{name: "postgres/advisory", packages: []string{postgres}, only: "^TestConformanceAdvisory$"},
	{name: "redis/single", packages: []string{redis}, only: "^TestConformance$"},
	{name: "redis/valkey", packages: []string{redis}, only: "^TestConformanceOfValkey$"},
	{name: "redis/tls", packages: []string{redis}, only: "^TestConformanceOfARestrictedUser$"},
	{name: "redis/cluster", packages: []string{redis}, only: "^TestConformanceOfACluster$"},
	{name: "redis/sentinel", packages: []string{redis}, only: "^TestConformanceWithSentinel$"},
	{name: "suite/memory", packages: []string{conformance}, only: "^TestMemory$"},
	{name: "suite/sabotage", packages: []string{conformance}, only: "^TestSabotageIsCaught$"},
}

// plan divides all tests of the packages among shards.
func plan(packages []string) []shard {
	var rests []shard // take longest, so they come first
	others := shard{name: "others"}
	for _, p := range packages {
		rest := shard{packages: []string{p}}
		for _, s := range apart {
			if s.packages[0] == p {
				family, _, _ := strings.Cut(s.name, "/")
				rest.name = family + "/others"
				rest.not = append(rest.not, s.only)
			}
		}
		if rest.name == "" {
			others.packages = append(others.packages, p)
			continue
		}
		rests = append(rests, rest)
	}
	return slices.Concat(rests, apart, []shard{others})
}

// args are those of go test.
func (s shard) args(flags []string) []string {
	args := append([]string{"test", "-json"}, flags...)
	if s.only != "" {
		args = append(args, "-run", s.only)
	}
	if len(s.not) > 0 {
		not := s.not
		if more := value(flags, "skip"); more != "" {
			not = append(slices.Clone(not), more)
		}
		args = append(args, "-skip", strings.Join(not, "|"))
	}
	return append(args, s.packages...)
}
