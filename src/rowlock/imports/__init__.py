"""THE LIFE OF A FILE: upload -> sniff -> plan -> chunk -> validate -> load -> report."""
