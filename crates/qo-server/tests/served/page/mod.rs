//! The page for people, over real HTTP.

mod actions;
mod pages;
mod visitor;
mod world;
